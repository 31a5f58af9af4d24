// Which local rows tiles load in place, and which copies become unnecessary.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "lower/passes.hpp"
#include "lower/tensor_cores.hpp"
#include "tilewire/check.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"

namespace tilewire {
namespace {

Config in_step() {
  Config config{.tile_m = 256, .tile_n = 192, .group_m = 8, .chunk_rows = 43, .chunk_cols = 64};
  config.tile_order = TileOrder::in_step;
  config.copy_workers = 3;
  return config;
}

Plan gather(int64_t m, const Config& config) {
  const Problem problem{.op = "all_gather_gemm", .m = m, .n = 512, .k = 512, .dtype = DType::bf16};
  return make_plan(problem, {.num_ranks = 4}, config);
}

Plan taken(Plan plan) {
  static_cast<void>(lowering::take_local_rows(plan, {}));
  EXPECT_EQ(from_json_text<Plan>(to_string(plan)), plan);
  return plan;
}

/// The pairs of places from which a rank's tiles load, each once.
std::vector<std::pair<Region, Region>> splits_of(const Plan& plan, int rank) {
  std::vector<std::pair<Region, Region>> found;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank != rank || !is_gemm_tile(task) || task.reads.size() == 2) continue;
      const std::pair split{task.reads[0], task.reads[2]};
      if (std::ranges::find(found, split) == found.end()) found.push_back(split);
    }
  }
  return found;
}

int64_t num_splits(const Plan& made, int rank) { return std::ssize(splits_of(taken(made), rank)); }

/// Writes of a rank's copies to itself.
int64_t copies_to_itself(const Plan& plan, int rank) {
  int64_t copies = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank != rank || task.kind != TaskKind::copy) continue;
      copies += std::ranges::count_if(task.writes, [&](const Write& write) { return write.to.rank == rank; });
    }
  }
  return copies;
}

/// A task that copies local rows, or null.
Task* copy_of_own(Plan& plan, int rank) {
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      const bool here = std::ranges::any_of(task.writes, [&](const Write& write) { return write.to.rank == rank; });
      if (lane.rank == rank && task.kind == TaskKind::copy && here) return &task;
    }
  }
  return nullptr;
}

TEST(LocalRows, AreTheFirstOrTheLastOnesOfATile) {
  // Two shards of 128 rows per tile: rank 2's rows come first, rank 3's last. Eight chunks of columns, three copies
  // each.
  const Plan made = gather(512, in_step());
  const Plan plan = taken(made);
  const CheckResult proof = check(plan);
  ASSERT_TRUE(proof.ok()) << proof.violations[0].text;
  for (const int rank : {2, 3}) {
    const auto splits = splits_of(plan, rank);
    ASSERT_EQ(splits.size(), 1u);
    const std::string mine = "rank " + std::to_string(rank) + " a rows 0..128 cols 0..512";
    EXPECT_EQ(region_name(plan, rank == 2 ? splits[0].first : splits[0].second), mine);
    const std::string theirs = " gather rows " + std::string(rank == 2 ? "384..512" : "256..384") + " cols 0..512";
    EXPECT_EQ(region_name(plan, rank == 2 ? splits[0].second : splits[0].first),
              "rank " + std::to_string(rank) + theirs);
    EXPECT_EQ(copies_to_itself(made, rank), 24);
    EXPECT_EQ(copies_to_itself(plan, rank), 0);
  }
  EXPECT_EQ(num_tasks(plan), num_tasks(made)) << "three peers have theirs";
}

TEST(LocalRows, AtBothEndsOfAShard) {
  // Shards of 328 rows, tiles of 256: rank 1 has rows 328..656, which are partly in tiles 256..512 and 512..768.
  const Config config{.tile_m = 256, .tile_n = 192, .chunk_rows = 50};
  const Plan plan = taken(gather(1312, config));
  EXPECT_TRUE(check(plan).ok());
  const auto splits = splits_of(plan, 1);
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(region_name(plan, splits[0].second), "rank 1 a rows 0..184 cols 0..512");
  EXPECT_EQ(region_name(plan, splits[1].first), "rank 1 a rows 184..328 cols 0..512");
  // With 325 rows the border is at no multiple of eight.
  const Plan odd = gather(1300, config);
  EXPECT_EQ(copies_to_itself(taken(odd), 1), copies_to_itself(odd, 1));
  // Rank 0's shard begins with a tile of its own.
  EXPECT_EQ(splits_of(plan, 0).size(), 1u);
}

TEST(LocalRows, NoneWhereNoTileIsSharedOrManyShareOne) {
  EXPECT_EQ(num_splits(gather(1024, in_step()), 1), 0);
  // Shards of 96 rows: rank 1's are in the middle of the first tile, rank 0's begin it.
  EXPECT_EQ(num_splits(gather(384, in_step()), 1), 0);
  EXPECT_EQ(num_splits(gather(384, in_step()), 0), 1);
  Config engines = in_step();
  engines.transport = Transport::copy_engine;
  engines.copy_workers = 0;
  EXPECT_EQ(num_splits(gather(512, engines), 1), 0) << "an engine's copies stay as they are";
  Config pairs = in_step();
  pairs.cluster_n = 2;
  EXPECT_EQ(num_splits(gather(512, pairs), 1), 0) << "A is loaded for two";
  Config low = in_step();
  low.tile_m = 128;
  EXPECT_EQ(num_splits(gather(576, low), 1), 0) << "not tiles of 128 rows";
}

/// A tile of another kernel reads its rows from their copies.
TEST(LocalRows, NoneWhereATileOfAnotherKernelReadsThem) {
  Plan plan = gather(512, in_step());
  ASSERT_EQ(num_splits(plan, 2), 1);
  Lane slow{.rank = 2, .name = "tiles_slow", .kernel = 1};
  for (Lane& lane : plan.lanes) {
    const auto shared = std::ranges::find_if(lane.tasks, [&](const Task& task) {
      return lane.rank == 2 && task.kind == TaskKind::compute && task.reads[0].row == 256;
    });
    if (shared == lane.tasks.end()) continue;
    slow.tasks.push_back(*shared);
    lane.tasks.erase(shared);
    break;
  }
  ASSERT_EQ(slow.tasks.size(), 1u);
  plan.lanes.push_back(slow);
  EXPECT_EQ(num_splits(plan, 2), 0);
}

TEST(LocalRows, NoneWhereAnybodyElseReadsOrWritesThem) {
  ASSERT_EQ(num_splits(gather(512, in_step()), 1), 1);
  Plan read = gather(512, in_step());
  const Region own = std::ranges::find(copy_of_own(read, 1)->writes, 1, [](const Write& w) { return w.to.rank; })->to;
  for (const int reader : {1, 2}) {
    Plan plan = gather(512, in_step());
    const auto lane = std::ranges::find(plan.lanes, reader, &Lane::rank);
    Region to = own;
    to.row += 256;  // not copied
    lane->tasks.push_back({.kind = TaskKind::copy, .reads = {own}, .writes = {{to}}});
    EXPECT_EQ(num_splits(plan, 1), 0) << "read by a copy of rank " << reader;
  }
  Plan twice = gather(512, in_step());
  const Task again = *copy_of_own(twice, 1);
  twice.lanes.back().tasks.push_back(again);
  EXPECT_EQ(num_splits(twice, 1), 0) << "written twice";
  // Some rows come from one place in the input, and others from another.
  Plan moved = gather(512, in_step());
  copy_of_own(moved, 1)->reads[0].row += 1;
  EXPECT_EQ(num_splits(moved, 1), 0);
  // If the caller wants the gathered rows, and peers write them there, local rows are written, too.
  Problem problem{.op = "all_gather_gemm", .m = 512, .n = 512, .k = 512, .dtype = DType::bf16};
  problem.gathered_output = true;
  EXPECT_EQ(num_splits(make_plan(problem, {.num_ranks = 4}, in_step()), 1), 1);
  problem.arena = {"gathered"};
  EXPECT_EQ(num_splits(make_plan(problem, {.num_ranks = 4}, in_step()), 1), 0);
}

/// Rows of A in two places are checked like those in one.
TEST(LocalRows, ThatAreWrongAreRefused) {
  const Plan good = taken(gather(512, in_step()));
  const auto damaged = [&](const auto& apply) {
    Plan plan = good;
    for (Lane& lane : plan.lanes) {
      const auto split = std::ranges::find_if(lane.tasks, [](const Task& t) { return t.reads.size() > 2; });
      if (split == lane.tasks.end() || !is_gemm_tile(*split)) continue;
      apply(*split);
      break;
    }
    const CheckResult result = check(plan);
    return result.ok() ? std::string("none") : result.violations[0].text;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(damaged([](Task&) {}), "none");
  EXPECT_PRED2(has, damaged([](Task& tile) { tile.reads[2].cols -= 1; }), "columns of bf16 and bf16");
  EXPECT_NE(damaged([](Task& tile) { tile.reads[2].row -= 8; }), "none") << "other rows";
  EXPECT_NE(damaged([](Task& tile) { std::swap(tile.reads[0], tile.reads[2]); }), "none") << "in another order";
  EXPECT_NE(damaged([](Task& tile) { tile.reads.pop_back(); }), "none") << "too few";
  EXPECT_NE(damaged([](Task& tile) { tile.waits.clear(); }), "none") << "too early";
}

TEST(LocalRows, ThatTheKernelDoesNotTakeMakeTilesSlow) {
  const auto reason = [](const auto& apply) {
    Plan plan = taken(gather(512, in_step()));
    for (Lane& lane : plan.lanes) {
      for (Task& task : lane.tasks) {
        if (is_gemm_tile(task) && task.reads.size() > 2) apply(task);
      }
    }
    return slow_tiles(plan).value_or("none");
  };
  EXPECT_EQ(reason([](Task&) {}), "none");
  EXPECT_EQ(reason([](Task& tile) { --tile.reads[0].rows, ++tile.reads[2].rows; }),
            "127 rows of A from one place and 129 from another, want a multiple of 8");
  EXPECT_EQ(reason([](Task& tile) {
              tile.reads[2].rows /= 2;
              tile.reads.push_back(tile.reads[2]);
            }),
            "rows of A from 3 places");
  EXPECT_EQ(reason([](Task& tile) { tile.gemm.cluster_m = 2; }),
            "rows of A from two places, of a tile of 256 x 192 in a cluster");
}

}  // namespace
}  // namespace tilewire
