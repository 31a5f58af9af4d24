// Which waits of tiles are deferred to the columns of A that need them.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>

#include "lower/passes.hpp"
#include "tilewire/check.hpp"
#include "tilewire/make_plan.hpp"

namespace tilewire {
namespace {

Plan gather(int64_t m, const Config& config, bool gathered = false) {
  Problem problem{.op = "all_gather_gemm", .m = m, .n = 512, .k = 512, .dtype = DType::bf16};
  problem.gathered_output = gathered;
  return make_plan(problem, {.num_ranks = 4}, config);
}

/// For each tile of a rank that loads early, the first columns that need its waits. Requires that the plan is proven.
std::vector<std::vector<int64_t>> column_waits(const Plan& plan, int rank) {
  Plan lowered = plan;
  static_cast<void>(lowering::defer_waits(lowered, {}));
  const CheckResult proof = check(lowered);
  EXPECT_TRUE(proof.ok() || !check(plan).ok()) << proof.violations[0].text;
  std::vector<std::vector<int64_t>> found;
  for (const Lane& lane : lowered.lanes) {
    for (const Task& task : lane.tasks) {
      const bool late = std::ranges::any_of(task.waits, [](const Wait& wait) { return wait.from_col > 0; });
      if (lane.rank != rank || !late) continue;
      for (auto& columns = found.emplace_back(); const Wait& wait : task.waits) columns.push_back(wait.from_col);
    }
  }
  return found;
}

/// Require that waits of a tile are for chunks of its owners, with the columns in order.
void expect_columns(const std::vector<std::vector<int64_t>>& waits, int64_t step) {
  for (const std::vector<int64_t>& columns : waits) {
    for (const int64_t column : columns) EXPECT_EQ(column % step, 0);
    EXPECT_EQ(*std::ranges::max_element(columns), 512 / step * step - (512 % step == 0 ? step : 0));
    EXPECT_EQ(*std::ranges::min_element(columns), 0);
  }
}

int64_t remote_tiles(const Plan& plan, int rank) {
  int64_t tiles = 0;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != rank) continue;
    tiles += std::ranges::count_if(
        lane.tasks, [](const Task& task) { return task.kind == TaskKind::compute && !task.waits.empty(); });
  }
  return tiles;
}

TEST(DeferWaits, OfChunksOfColumns) {
  for (const Transport transport : {Transport::store, Transport::copy_engine}) {
    for (const Direction direction : {Direction::push, Direction::pull}) {
      const Plan plan = gather(1024, {.chunk_cols = 128, .direction = direction, .transport = transport});
      const auto waits = column_waits(plan, 1);
      EXPECT_EQ(std::ssize(waits), remote_tiles(plan, 1));
      expect_columns(waits, 128);
    }
  }
}

TEST(DeferWaits, OfTilesOfTwoOwnersAndOddCuts) {
  const Plan plan = gather(600, {.chunk_cols = 200});  // shards of 150 rows, tiles of 128
  const auto waits = column_waits(plan, 2);
  EXPECT_EQ(std::ssize(waits), remote_tiles(plan, 2));
  expect_columns(waits, 200);
}

TEST(DeferWaits, OfTilesInStepBehindFewWorkers) {
  // Each tile has two owners' rows, in eight chunks of columns that go to all peers at once; local rows with them.
  Config config{
      .tile_m = 256, .tile_n = 192, .group_m = 8, .chunk_rows = 43, .chunk_cols = 64, .tile_order = TileOrder::in_step};
  config.copy_workers = 3;
  const Plan plan = gather(512, config);
  const auto waits = column_waits(plan, 3);
  EXPECT_EQ(std::ssize(waits), 2) << "tiles of a rank";
  expect_columns(waits, 64);
  for (const auto& columns : waits) {
    for (int64_t col = 0; col < 512; col += 64) EXPECT_GE(std::ranges::count(columns, col), 1) << col;
  }
}

TEST(DeferWaits, NoneWhereAllColumnsComeAtOnce) {
  EXPECT_TRUE(column_waits(gather(1024, {}), 0).empty());
  EXPECT_TRUE(column_waits(gather(1024, {.chunk_rows = 32}), 0).empty());
  EXPECT_TRUE(column_waits(gather(1024, {.schedule = "sequential"}), 0).empty());
}

TEST(DeferWaits, ResultsAloneWaitWhereNobodyWritesTheOperands) {
  // Tiles for peers wait until the owner has begun; rank 1 sends three quarters of its tiles.
  const Plan plan = make_plan({.op = "gemm_reduce_scatter", .m = 1024, .n = 512, .k = 512, .dtype = DType::bf16},
                              {.num_ranks = 4}, {});
  const auto waits = column_waits(plan, 1);
  EXPECT_EQ(std::ssize(waits), remote_tiles(plan, 1));
  EXPECT_EQ(std::ssize(waits), 3 * 2 * 2);
  for (const auto& columns : waits) EXPECT_EQ(columns, std::vector<int64_t>{512 / 4 - 1});
}

TEST(DeferWaits, NoneWhereAWriterIsNotAwaited) {
  Plan plan = gather(1024, {.chunk_cols = 128});
  const auto before = std::ssize(column_waits(plan, 0));
  // Another task writes a part of the rows of A of all of rank 1's tiles, without a post.
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank != 1 || task.kind != TaskKind::copy || task.writes[0].to.rank != 0) continue;
      Task again = task;
      again.posts.clear();
      plan.lanes.back().tasks.push_back(again);
      EXPECT_LT(std::ssize(column_waits(plan, 0)), before);
      return;
    }
  }
  FAIL() << "no copy";
}

/// A tile that loads too early is refused.
TEST(DeferWaits, TheCheckerRefusesAWaitThatComesTooLate) {
  Plan plan = gather(1024, {.chunk_cols = 128});
  static_cast<void>(lowering::defer_waits(plan, {}));
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      for (Wait& wait : task.waits) {
        if (wait.from_col != 128) continue;
        wait.from_col = 256;  // columns 128 .. 255 may not have come
        const CheckResult result = check(plan);
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.violations[0].rule, Rule::race) << result.violations[0].text;
        EXPECT_NE(result.violations[0].text.find("(compute)"), std::string::npos) << result.violations[0].text;
        return;
      }
    }
  }
  FAIL() << "no deferred wait";
}

}  // namespace
}  // namespace tilewire
