// Which waits of tiles are removed from a rank's tables.
// Needs no GPU.
#include <gtest/gtest.h>

#include "backends/cuda/tables/lane_tables.hpp"

namespace tilewire::cuda {
namespace {

uint64_t words[4];

/// A table of tiles with one wait each, for signal `signals[i]` to reach `least[i]`, and one wait for partials each.
RankTables tables_of(const std::vector<int>& signals, const std::vector<uint64_t>& least, uint32_t ctas) {
  RankTables tables;
  tables.gemm_ctas = ctas;
  for (size_t i = 0; i < signals.size(); ++i) {
    TileRecord tile;
    tile.first_wait = static_cast<uint32_t>(tables.gemm.waits.size());
    tile.num_waits = tile.num_partial_waits = 1;
    tables.gemm.waits.push_back({&words[signals[i]], least[i], 9});
    tables.gemm.waits.push_back({&words[3], i, 9});
    tables.gemm.tiles.push_back(tile);
  }
  return tables;
}

std::vector<int> kept(RankTables tables) {
  drop_repeated_waits(tables);
  std::vector<int> waits;
  for (size_t i = 0; i < tables.gemm.tiles.size(); ++i) {
    const TileRecord& tile = tables.gemm.tiles[i];
    waits.push_back(tile.num_waits);
    // The part waits follow, wherever the tile's own have gone.
    EXPECT_EQ(tables.gemm.waits[tile.first_wait + tile.num_waits].signal, &words[3]);
    EXPECT_EQ(tables.gemm.waits[tile.first_wait + tile.num_waits].at_least, i);
  }
  return waits;
}

TEST(RepeatedWaits, AreLeftOutWithinACta) {
  EXPECT_EQ(kept(tables_of({0, 0, 0, 0}, {1, 1, 1, 1}, 1)), (std::vector{1, 0, 0, 0}));
  // Two CTAs: each waits once.
  EXPECT_EQ(kept(tables_of({0, 0, 0, 0}, {1, 1, 1, 1}, 2)), (std::vector{1, 1, 0, 0}));
  EXPECT_EQ(kept(tables_of({0, 1, 1, 0}, {1, 1, 1, 1}, 2)), (std::vector{1, 1, 1, 1}));
}

TEST(RepeatedWaits, ForMoreAreKept) {
  EXPECT_EQ(kept(tables_of({0, 0, 0, 0}, {1, 2, 1, 2}, 1)), (std::vector{1, 1, 0, 0}));
}

/// The waits that the ops of one lane keep, each for the same signal.
std::vector<int> kept_by_steps(size_t count, const LaneRecord& lane) {
  RankTables tables;
  tables.workers.ops.resize(1);  // of no lane
  for (size_t i = 0; i < count; ++i) {
    OpRecord& step = tables.workers.ops.emplace_back();
    step.first_wait = static_cast<uint32_t>(i);
    step.num_waits = 1;
    tables.workers.waits.push_back({&words[0], 1, 1});
  }
  tables.workers.lanes.push_back(lane);
  tables.workers.lanes[0].first_op = 1;
  tables.workers.lanes[0].num_ops = static_cast<uint32_t>(count);
  drop_repeated_waits(tables);
  std::vector<int> waits;
  for (size_t i = 1; i <= count; ++i) waits.push_back(static_cast<int>(tables.workers.ops[i].num_waits));
  return waits;
}

TEST(RepeatedWaits, AreLeftOutOfSteps) {
  EXPECT_EQ(kept_by_steps(4, {.ctas = 1}), (std::vector{1, 0, 0, 0}));
  EXPECT_EQ(kept_by_steps(5, {.ctas = 3}), (std::vector{1, 1, 1, 0, 0}));
  // All CTAs take all steps.
  EXPECT_EQ(kept_by_steps(3, {.ctas = 3, .serial = true}), (std::vector{1, 0, 0}));
  EXPECT_EQ(kept_by_steps(3, {.sync_only = true}), (std::vector{1, 0, 0}));
  // One, two or three warpgroups per CTA.
  EXPECT_EQ(kept_by_steps(8, {.warpgroups = true}), (std::vector{1, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(kept_by_steps(14, {.ctas = 2, .warpgroups = true}),
            (std::vector{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}));
  // Any worker may take any op.
  EXPECT_EQ(kept_by_steps(3, {.helped = true}), (std::vector{1, 1, 1}));
}

TEST(RepeatedWaits, NoneWithoutTiles) { EXPECT_TRUE(kept(RankTables{}).empty()); }

}  // namespace
}  // namespace tilewire::cuda
