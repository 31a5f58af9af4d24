// Which waits of tiles come only with the columns of A that need them.
// Built as part of the target `unit_core`.
#include "core/column_waits.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tilewire/schedule.hpp"

namespace tilewire {
namespace {

Plan gather(int64_t m, const Config& config, bool gathered = false) {
  Problem problem{.op = "all_gather_gemm", .m = m, .n = 512, .k = 512, .dtype = DType::bf16};
  problem.gathered_output = gathered;
  return make_plan(problem, {.num_ranks = 4}, config);
}

/// The tiles of a rank's lane that `waits` tells of: waits of a tile are for chunks of its owners, columns in order.
void expect_columns(const Plan& plan, int rank, const std::vector<ColumnWaits>& waits, int64_t step) {
  std::vector<const Lane*> lanes;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank == rank) lanes.push_back(&lane);
  }
  for (const ColumnWaits& late : waits) {
    const Task& tile = lanes[late.lane]->tasks[late.tile];
    ASSERT_EQ(late.columns.size(), tile.waits.size());
    for (size_t i = 0; i < tile.waits.size(); ++i) EXPECT_EQ(late.columns[i] % step, 0);
    EXPECT_EQ(*std::ranges::max_element(late.columns), 512 / step * step - (512 % step == 0 ? step : 0));
    EXPECT_EQ(*std::ranges::min_element(late.columns), 0);
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

TEST(ColumnWaits, OfChunksOfColumns) {
  for (const Transport transport : {Transport::store, Transport::copy_engine}) {
    for (const Direction direction : {Direction::push, Direction::pull}) {
      const Plan plan = gather(1024, {.chunk_cols = 128, .direction = direction, .transport = transport});
      const auto waits = column_waits(plan, 1);
      EXPECT_EQ(std::ssize(waits), remote_tiles(plan, 1));
      expect_columns(plan, 1, waits, 128);
    }
  }
}

TEST(ColumnWaits, OfTilesOfTwoOwnersAndOddCuts) {
  const Plan plan = gather(600, {.chunk_cols = 200});  // shards of 150 rows, tiles of 128
  const auto waits = column_waits(plan, 2);
  EXPECT_EQ(std::ssize(waits), remote_tiles(plan, 2));
  expect_columns(plan, 2, waits, 200);
}

TEST(ColumnWaits, OfTilesInStepBehindFewWorkers) {
  // Each tile has two owners' rows, in eight cuts of columns that go to all peers at once; own ones with them.
  Config config{
      .tile_m = 256, .tile_n = 192, .group_m = 8, .chunk_rows = 43, .chunk_cols = 64, .tile_order = TileOrder::in_step};
  config.copy_workers = 3;
  const Plan plan = gather(512, config);
  const auto waits = column_waits(plan, 3);
  EXPECT_EQ(std::ssize(waits), 2) << "tiles of a rank";
  expect_columns(plan, 3, waits, 64);
  for (const ColumnWaits& late : waits) {
    for (int64_t col = 0; col < 512; col += 64) EXPECT_GE(std::ranges::count(late.columns, col), 1) << col;
  }
}

TEST(ColumnWaits, NoneWhereAllColumnsComeAtOnce) {
  EXPECT_TRUE(column_waits(gather(1024, {}), 0).empty());
  EXPECT_TRUE(column_waits(gather(1024, {.chunk_rows = 32}), 0).empty());
  EXPECT_TRUE(column_waits(gather(1024, {.schedule = "sequential"}), 0).empty());
}

TEST(ColumnWaits, ResultsAloneWaitWhereNobodyWritesTheOperands) {
  // Tiles that leave wait until their owner has begun; rank 1 sends three quarters of them.
  const Plan plan = make_plan({.op = "gemm_reduce_scatter", .m = 1024, .n = 512, .k = 512, .dtype = DType::bf16},
                              {.num_ranks = 4}, {});
  const auto waits = column_waits(plan, 1);
  EXPECT_EQ(std::ssize(waits), remote_tiles(plan, 1));
  EXPECT_EQ(std::ssize(waits), 3 * 2 * 2);
  for (const ColumnWaits& late : waits) EXPECT_EQ(late.columns, std::vector<int64_t>{512 / 4 - 1});
}

TEST(ColumnWaits, NoneWhereAWriterIsNotAwaited) {
  Plan plan = gather(1024, {.chunk_cols = 128});
  const auto before = std::ssize(column_waits(plan, 0));
  // Somebody else writes a part of what every tile of rank 1's rows reads, and tells nobody.
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

}  // namespace
}  // namespace tilewire
