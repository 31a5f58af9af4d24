// Which rows of a rank's own input tiles load where they are, and which copies nobody needs then.
// Needs no GPU.
#include "backends/cuda/tables/local_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tilewire/schedule.hpp"

namespace tilewire::cuda {
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

std::vector<const Lane*> lanes_of(const Plan& plan, int rank) {
  std::vector<const Lane*> lanes;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank == rank) lanes.push_back(&lane);
  }
  return lanes;
}

/// A task that copies a rank's own rows, or nothing.
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
  // Two shards of 128 rows to a tile: rank 2's come first, rank 3's last. Eight cuts of columns, three pieces each.
  const Plan plan = gather(512, in_step());
  for (const int rank : {2, 3}) {
    const LocalRowsOfTiles own = local_rows(plan, rank);
    ASSERT_EQ(own.rows.size(), 1u);
    const LocalRows& rows = own.rows[0];
    EXPECT_EQ(region_name(plan, rows.a), "rank " + std::to_string(rank) + " gather rows 256..512 cols 0..512");
    const std::string mine = "rank " + std::to_string(rank) + " a rows 0..128 cols 0..512";
    EXPECT_EQ(region_name(plan, rank == 2 ? rows.first : rows.rest), mine);
    const std::string theirs = " gather rows " + std::string(rank == 2 ? "384..512" : "256..384") + " cols 0..512";
    EXPECT_EQ(region_name(plan, rank == 2 ? rows.rest : rows.first), "rank " + std::to_string(rank) + theirs);
    ASSERT_EQ(own.spare.size(), 24u);
    for (const CopyWrite& spare : own.spare) {
      const Task& copy = lanes_of(plan, rank)[spare.lane]->tasks[spare.task];
      EXPECT_EQ(copy.writes.size(), 4u) << "three peers, and here";
      EXPECT_EQ(copy.writes[spare.write].to.rank, rank);
    }
  }
}

TEST(LocalRows, AtBothEndsOfAShard) {
  // Shards of 328 rows, tiles of 256: rank 1 has rows 328..656, of which tiles 256..512 and 512..768 share some.
  Config config{.tile_m = 256, .tile_n = 192, .chunk_rows = 50};
  const Plan plan = gather(1312, config);
  const LocalRowsOfTiles own = local_rows(plan, 1);
  ASSERT_EQ(own.rows.size(), 2u);
  EXPECT_EQ(region_name(plan, own.rows[0].rest), "rank 1 a rows 0..184 cols 0..512");
  EXPECT_EQ(region_name(plan, own.rows[1].first), "rank 1 a rows 184..328 cols 0..512");
  // With 325 rows the border is at no multiple of eight.
  EXPECT_TRUE(local_rows(gather(1300, config), 1).spare.empty());
  // Rank 0's shard begins with a tile of its own.
  EXPECT_EQ(local_rows(plan, 0).rows.size(), 1u);
}

TEST(LocalRows, NoneWhereNoTileIsSharedOrManyShareOne) {
  EXPECT_TRUE(local_rows(gather(1024, in_step()), 1).rows.empty());
  // Shards of 96 rows: rank 1's are in the middle of the first tile, rank 0's begin it.
  EXPECT_TRUE(local_rows(gather(384, in_step()), 1).rows.empty());
  EXPECT_EQ(local_rows(gather(384, in_step()), 0).rows.size(), 1u);
  Config engines = in_step();
  engines.transport = Transport::copy_engine;
  engines.copy_workers = 0;
  EXPECT_TRUE(local_rows(gather(512, engines), 1).rows.empty()) << "an engine's copies stay as they are";
  Config pairs = in_step();
  pairs.cluster_n = 2;
  EXPECT_TRUE(local_rows(gather(512, pairs), 1).rows.empty()) << "A is loaded for two";
  Config low = in_step();
  low.tile_m = 128;
  EXPECT_TRUE(local_rows(gather(576, low), 1).rows.empty()) << "not tiles of 128 rows";
}

/// A tile of another kernel reads its rows where copies bring them.
TEST(LocalRows, NoneWhereATileOfAnotherKernelReadsThem) {
  Plan plan = gather(512, in_step());
  ASSERT_FALSE(local_rows(plan, 2).spare.empty());
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
  EXPECT_TRUE(local_rows(plan, 2).spare.empty());
}

TEST(LocalRows, NoneWhereAnybodyElseReadsOrWritesThem) {
  ASSERT_FALSE(local_rows(gather(512, in_step()), 1).rows.empty());
  Plan read = gather(512, in_step());
  const Region own = std::ranges::find(copy_of_own(read, 1)->writes, 1, [](const Write& w) { return w.to.rank; })->to;
  for (const int reader : {1, 2}) {
    Plan plan = gather(512, in_step());
    const auto lane = std::ranges::find(plan.lanes, reader, &Lane::rank);
    Region to = own;
    to.row += 256;  // not copied
    lane->tasks.push_back({.kind = TaskKind::copy, .reads = {own}, .writes = {{to}}});
    EXPECT_TRUE(local_rows(plan, 1).rows.empty()) << "read by a copy of rank " << reader;
  }
  Plan twice = gather(512, in_step());
  const Task again = *copy_of_own(twice, 1);
  twice.lanes.back().tasks.push_back(again);
  EXPECT_TRUE(local_rows(twice, 1).rows.empty()) << "written twice";
  // Rows that come from one place in the input, and others from another.
  Plan moved = gather(512, in_step());
  copy_of_own(moved, 1)->reads[0].row += 1;
  EXPECT_TRUE(local_rows(moved, 1).rows.empty());
  // Where the caller wants the gathered rows, and peers write them there, own ones are written, too.
  Problem problem{.op = "all_gather_gemm", .m = 512, .n = 512, .k = 512, .dtype = DType::bf16};
  problem.gathered_output = true;
  EXPECT_EQ(local_rows(make_plan(problem, {.num_ranks = 4}, in_step()), 1).rows.size(), 1u);
  problem.arena = {"gathered"};
  EXPECT_TRUE(local_rows(make_plan(problem, {.num_ranks = 4}, in_step()), 1).rows.empty());
}

}  // namespace
}  // namespace tilewire::cuda
