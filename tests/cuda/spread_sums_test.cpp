// The CTA of each tile of a wave if some tiles complete sums.
// Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "backends/cuda/tables/lane_tables.hpp"

namespace tilewire::cuda {
namespace {

/// Tiles with these numbers of partials, each of `cluster` records, for `ctas` CTAs.
RankTables tables_of(const std::vector<int>& parts, uint32_t ctas, ClusterShape cluster = {}) {
  RankTables tables;
  tables.gemm_ctas = ctas;
  tables.cluster = cluster;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (uint32_t k = 0; k < cluster_ctas(cluster); ++k) {
      TileRecord tile;
      tile.task = static_cast<uint32_t>(i);
      tile.num_partials = static_cast<uint8_t>(parts[i]);
      tables.gemm.tiles.push_back(tile);
    }
  }
  return tables;
}

std::vector<uint32_t> spread(RankTables tables) {
  spread_sums(tables);
  std::vector<uint32_t> tasks;
  for (const TileRecord& tile : tables.gemm.tiles) tasks.push_back(tile.task);
  return tasks;
}

TEST(SpreadSums, StayWhereAllCtasHaveAsMany) {
  EXPECT_EQ(spread(tables_of({0, 0, 0, 0, 0}, 2)), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(spread(tables_of({3, 3, 3, 3}, 2)), (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(spread(tables_of({0, 0, 3, 3, 0, 3}, 2)), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(spread(tables_of({0, 3}, 2)), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(spread(tables_of({}, 0)), (std::vector<uint32_t>{}));
}

TEST(SpreadSums, GoToThoseThatHadFewest) {
  // In the plan's order, the last of three CTAs would have all sums.
  EXPECT_EQ(spread(tables_of({0, 0, 3, 0, 0, 3, 0, 0, 3}, 3)), (std::vector<uint32_t>{0, 1, 2, 5, 3, 4, 6, 8, 7}));
  // A last wave in which not all CTAs have a tile.
  EXPECT_EQ(spread(tables_of({3, 0, 0, 3, 0}, 3)), (std::vector<uint32_t>{0, 1, 2, 4, 3}));
}

TEST(SpreadSums, StayWhereTheyWouldHaveToComeEarlier) {
  // Two CTAs; after the swap, the second CTA's tile after its sum is its first tile for that peer.
  static uint64_t signals[2];
  RankTables tables = tables_of({0, 3, 0, 3, 0, 0}, 2);
  const auto wait = [&](size_t tile, const uint64_t* signal) {
    tables.gemm.tiles[tile].first_wait = static_cast<uint32_t>(tables.gemm.waits.size());
    tables.gemm.tiles[tile].num_waits = 1;
    tables.gemm.waits.push_back({signal, 1, 1});
  };
  EXPECT_EQ(spread(tables), (std::vector<uint32_t>{0, 1, 3, 2, 4, 5}));
  wait(0, &signals[0]);
  wait(2, &signals[0]);
  wait(4, &signals[0]);
  // In the plan's order, CTA 0 has waited before: only CTA 1's last tile would be its first for the peer.
  EXPECT_EQ(spread(tables), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(SpreadSums, KeepClustersTogether) {
  EXPECT_EQ(spread(tables_of({0, 1, 0, 1}, 4, {.m = 2})), (std::vector<uint32_t>{0, 0, 1, 1, 3, 3, 2, 2}));
  EXPECT_EQ(spread(tables_of({0, 1, 0, 1}, 4, {.k = 2})), (std::vector<uint32_t>{0, 0, 1, 1, 3, 3, 2, 2}));
}

TEST(SpreadSums, LeaveEachWaveItsTiles) {
  constexpr uint32_t kCtas = 12;
  std::vector<int> parts;
  for (int i = 0; i < 100; ++i) parts.push_back(i % 12 > 8 ? 3 : i % 7 == 0 ? 1 : 0);
  std::vector<uint32_t> tasks = spread(tables_of(parts, kCtas));
  std::vector<int> of_cta(kCtas, 0);
  for (size_t i = 0; i < tasks.size(); ++i) of_cta[i % kCtas] += parts[tasks[i]];
  EXPECT_LE(std::ranges::max(of_cta) - std::ranges::min(of_cta), 3);
  for (size_t first = 0; first < tasks.size(); first += kCtas) {
    const size_t end = std::min(tasks.size(), first + kCtas);
    std::sort(tasks.begin() + static_cast<ptrdiff_t>(first), tasks.begin() + static_cast<ptrdiff_t>(end));
  }
  std::vector<uint32_t> all(parts.size());
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(tasks, all);
}

}  // namespace
}  // namespace tilewire::cuda
