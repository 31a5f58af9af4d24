// Cluster split-K as records: the K and the waits of each part, refusals, and SMs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/tables/gemm_table.hpp"
#include "backends/cuda/tables/lane_tables.hpp"
#include "tilewire/error.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::cuda {
namespace {

TEST(ClusterSplitK, PartsFollowEachOther) {
  HostTable table;
  TileRecord tile{.k_begin = 64, .k_steps = 10, .rows = 100, .cols = 50};
  tile.num_posts = tile.num_partial_waits = tile.num_writes = 1;
  tile.num_partials = 1;
  table.tiles = {tile, tile};
  split_k_in_cluster(table, 3);
  ASSERT_EQ(table.tiles.size(), 6);
  int32_t begin = 64;
  for (int i = 0; i < 3; ++i) {
    const TileRecord& part = table.tiles[i];
    EXPECT_EQ(part.k_begin, begin);
    EXPECT_GE(part.k_steps, 3);
    begin += part.k_steps * kTileK;
    // The first one has all that is not multiplied.
    const int whole = i == 0 ? 1 : 0;
    EXPECT_EQ(part.rows, whole * 100);
    EXPECT_EQ(part.cols, whole * 50);
    EXPECT_EQ(part.num_posts + part.num_writes + part.num_partials + part.num_partial_waits, 4 * whole);
  }
  EXPECT_EQ(begin, 64 + 10 * kTileK);
}

TEST(ClusterSplitK, PartsThatAreAddedInTurnsHaveAllThatIsWritten) {
  HostTable table;
  TileRecord tile{.k_steps = 10, .rows = 100, .cols = 50};
  tile.first_write = 3;
  tile.num_writes = 2;
  table.tiles = {tile, tile};
  table.tiles[1].num_posts = 1;  // so that one CTA adds all of it
  split_k_in_cluster(table, 2);
  for (int i = 0; i < 4; ++i) {
    const TileRecord& part = table.tiles[i];
    const int sends = i < 3 ? 1 : 0;
    EXPECT_EQ(part.rows, sends * 100) << i;
    EXPECT_EQ(part.cols, sends * 50) << i;
    EXPECT_EQ(part.num_writes, sends * 2) << i;
    EXPECT_EQ(part.first_write, 3) << i;
    EXPECT_EQ(part.num_posts, i == 2 ? 1 : 0) << i;
  }
}

TEST(ClusterSplitK, PartsWaitForWhatTheyNeed) {
  HostTable table;
  TileRecord tile{.k_steps = 20, .num_waits = 3};
  tile.first_wait = 1;
  tile.num_partial_waits = 1;
  tile.num_partials = 1;
  table.tiles = {tile};
  const auto wait = [](uint64_t at_least, uint32_t step) { return WaitRecord{nullptr, at_least, 0, 0, step}; };
  table.waits = {wait(9, 0), wait(1, 0), wait(2, 8), wait(3, 15), wait(7, 0)};
  split_k_in_cluster(table, 2);
  const auto waits_of = [&](const TileRecord& part) {
    std::vector<std::pair<uint64_t, uint32_t>> list;
    for (int i = 0; i < part.num_waits + part.num_partial_waits; ++i) {
      const WaitRecord& each = table.waits[part.first_wait + i];
      list.emplace_back(each.at_least, each.step);
    }
    return list;
  };
  using List = std::vector<std::pair<uint64_t, uint32_t>>;
  EXPECT_EQ(table.tiles[0].num_waits, 2);
  EXPECT_EQ(waits_of(table.tiles[0]), (List{{1, 0}, {2, 8}, {7, 0}}));
  EXPECT_EQ(waits_of(table.tiles[1]), (List{{1, 0}, {2, 0}, {3, 5}}));
}

TEST(ClusterSplitK, RefusesLargeTilesAndShortK) {
  const auto refusal = [](int64_t tile_n, int64_t k, int parts) {
    const Problem problem{.op = "gemm_reduce_scatter", .m = 256, .n = 512, .k = k, .dtype = DType::bf16};
    const Config config{.tile_n = tile_n, .cluster_split_k = parts};
    return refuses_cluster_split_k(make_plan(problem, {.num_ranks = 2}, config)).value_or("");
  };
  EXPECT_EQ(refusal(128, 4096, 4), "");
  EXPECT_EQ(refusal(256, 4096, 4), "tiles of 128 x 256 are too large, want at most 128 x 128, or up to 176 x 128");
  EXPECT_EQ(refusal(128, 1528, 2), "tiles over 764 columns of A, want at least 768");
  EXPECT_EQ(refusal(256, 64, 1), "");
  // Such tiles run without tensor cores, and without split-K.
  EXPECT_EQ(refusal(100, 64, 2), "");
}

TEST(ClusterSplitK, APartHasAStep) {
  HostTable table;
  table.tiles = {{.k_steps = 3}};
  EXPECT_THROW(split_k_in_cluster(table, 4), Error);
}

TEST(ClusterSplitK, IsAChoiceForTensorCores) {
  const auto cut = [](DType dtype) {
    Team team{.num_ranks = 4};
    team.devices.assign(4, {.copy_engines = 3, .sms = 132});
    const Problem problem{.op = "all_gather_gemm", .m = 64, .n = 8192, .k = 8192, .dtype = dtype};
    const auto configs = find_schedule("fused").candidates(problem, team);
    return std::ranges::any_of(configs, [](const Config& config) { return config.cluster_split_k > 1; });
  };
  EXPECT_TRUE(cut(DType::bf16));
  EXPECT_FALSE(cut(DType::fp32));
}

}  // namespace
}  // namespace tilewire::cuda
