// Which tiles the GEMM kernel takes, which of its bodies takes them, and what the L2 cache is told of them.
#include <gtest/gtest.h>

#include "backends/cuda/tables/gemm_table.hpp"
#include "lower/kernel_limits.hpp"
#include "operator_names.hpp"
#include "schedules/tiles.hpp"

namespace tilewire::cuda {
namespace {

TEST(TileShapes, AnyMultipleOf8RowsOf128Columns) {
  for (int rows = 0; rows <= 320; ++rows) {
    const TileShape shape{rows, 128};
    const bool fixed = rows == 64 || rows == 128 || rows == 256;
    const bool free = rows >= 72 && rows <= 248 && rows % 8 == 0 && !fixed;
    EXPECT_EQ(has_runtime_rows(shape), free) << rows;
    EXPECT_EQ(is_compiled(shape), free || fixed) << rows;
    EXPECT_FALSE(has_runtime_rows({rows, 256}));
  }
  for (const TileShape& shape : kTileShapes) {
    EXPECT_TRUE(is_compiled(shape));
    EXPECT_EQ(body_shape(shape), shape);
  }
}

TEST(TileShapes, ABodyHasRoomForItsTiles) {
  for (int rows = kFewestRows; rows <= 248; rows += 8) {
    const TileShape shape{rows, 128};
    if (!has_runtime_rows(shape)) continue;
    const TileShape body = body_shape(shape);
    EXPECT_LE(shape.m, body.m);
    EXPECT_GE(shape.m, least_rows(body));
    EXPECT_EQ(body_shape(body), body);
    for (const bool kn : {false, true}) {
      EXPECT_GE(stage_bytes(shape, kn), (rows + 128) * kTileK * 2);
      EXPECT_EQ(stage_bytes(shape, kn) % 1024, 0);
      EXPECT_GE(num_stages(shape, kn), 4);
    }
    EXPECT_TRUE(holds_results(shape));
    EXPECT_EQ(may_split_k_in_cluster(shape), may_split_k_in_cluster(body));
    EXPECT_GE(most_partials(shape), 3);
    EXPECT_FALSE(chunks_overlap(shape));
  }
}

constexpr CacheHints kNothing{};
constexpr CacheHints kBFirst{.b = Eviction::first};
constexpr CacheHints kBothFirst{.a = Eviction::first, .b = Eviction::first};
constexpr CacheHints kBNormal{.b = Eviction::normal};

CacheHints hints_for(int64_t rows, int64_t b_bytes, int64_t tile_m, bool near) {
  const OperandHints hints = cache_hints_for(rows, b_bytes, tile_m, near);
  return {eviction_of(hints.a), eviction_of(hints.b)};
}

TEST(TileShapes, CacheHintsFollowFromRowsAndWeights) {
  constexpr int64_t kSmall = 64 << 20;
  constexpr int64_t kLarge = 256 << 20;
  for (const bool near : {false, true}) {
    EXPECT_EQ(hints_for(64, kSmall, 64, near), kBFirst);
    EXPECT_EQ(hints_for(100, kSmall, 104, near), kBFirst);
    EXPECT_EQ(hints_for(64, kLarge, 64, near), kBNormal);  // read once, and more than a cache holds
    EXPECT_EQ(hints_for(1025, kSmall, 128, near), kNothing);
  }
  EXPECT_EQ(hints_for(64, kLarge - 1, 64, true), kBFirst);
  EXPECT_EQ(hints_for(128, kLarge - 1, 128, true), kNothing);
  EXPECT_EQ(hints_for(128, kSmall, 64, true), kBFirst);
  EXPECT_EQ(hints_for(200, kSmall, 104, true), kBothFirst);
  EXPECT_EQ(hints_for(1023, kLarge, 128, true), kBothFirst);
  EXPECT_EQ(hints_for(1024, kLarge, 128, true), kBFirst);
  // Who shares columns comes later than a cache would keep them; of little B it does.
  EXPECT_EQ(hints_for(200, kSmall, 104, false), kNothing);
  EXPECT_EQ(hints_for(512, kLarge, 128, false), kNothing);
  EXPECT_EQ(hints_for(450, kSmall, 120, false), kBothFirst);
}

TEST(TileShapes, TheOrderOfTilesSaysWhetherSharersAreNear) {
  // Tiles of 100 rows, of these columns, in so many steps of K.
  const auto told = [](std::vector<int32_t> columns, int64_t reach, int32_t k_steps = 16) {
    HostTable table;
    for (const int32_t col : columns)
      table.tiles.push_back({.b_col = col, .k_steps = k_steps, .rows = 100, .cols = 128});
    set_cache_hints(table, {104, 128}, reach);
    return table.cache_hints;
  };
  EXPECT_EQ(told({0, 0, 128, 128}, kNear), kBothFirst);
  EXPECT_EQ(told({0, 0, 128, 128}, 2), kBothFirst);
  EXPECT_EQ(told({0, 0, 128, 128}, 1), kNothing);
  std::vector<int32_t> by_rows;
  for (int i = 0; i < 64; ++i) by_rows.push_back(i % 32 * 128);
  EXPECT_EQ(told(by_rows, kNear), kNothing);
  // One tile of each of the columns has all rows, which few are.
  EXPECT_EQ(told({0, 128, 256}, 1), kBFirst);
  constexpr int32_t kMuch = (256 << 20) / (128 * kTileK * 2);
  EXPECT_EQ(told({0}, 1, kMuch), kBNormal);
  // A B of as many bytes, which another one is half of.
  EXPECT_EQ(told({0, 128}, 1, kMuch / 2), kBNormal);
}

TEST(TileShapes, WhatIsMeasuredIsCompiled) {
  Team team{.num_ranks = 1};
  for (const char* op : testing::operator_names(testing::has_gemm)) {
    for (int64_t m = 1; m < 5000; m = m * 9 / 8 + 1) {
      for (const int ranks : {1, 2, 4, 8}) {
        team.num_ranks = ranks;
        team.devices.assign(static_cast<size_t>(ranks), {.sms = 132});
        const Problem problem{.op = op, .m = m, .n = 10240, .k = 8192, .dtype = DType::bf16};
        for (const Config& config : find_schedule("fused").candidates(problem, team)) {
          if (config.compute == Provider::library) continue;  // its tiles are the pieces of sums
          if (config.tile_m <= kMostGemvRows) continue;       // by the GEMV kernel
          const TileShape shape{static_cast<int>(config.tile_m), static_cast<int>(config.tile_n)};
          EXPECT_TRUE(is_compiled(shape)) << op << " " << m << ": " << shape.m << " x " << shape.n;
          EXPECT_TRUE(config.cluster_split_k == 1 || may_split_k_in_cluster(shape))
              << op << " " << m << ": " << shape.m;
        }
      }
    }
  }
}

TEST(TileShapes, CtasAreSpreadEvenly) {
  for (const uint32_t shift : {0U, 1U}) {
    for (const uint32_t all : {1U, 7U, 64U, 132U, 300U, 5000U}) {
      for (uint32_t some = 1; some <= all; some += some / 50 + 1) {
        const Spread spread = spread_of(some, all, shift);
        ASSERT_EQ(spread.all, (all + shift) >> shift << shift);
        for (uint32_t cta = 0; cta < spread.all; ++cta) {
          const uint32_t before = spread_before(spread, cta);
          const bool here = spread_before(spread, cta + 1) > before;
          ASSERT_LE(spread_before(spread, cta + 1) - before, 1U) << some << " of " << all;
          ASSERT_NEAR(before, double(cta) * some / spread.all, 1 + 2 * shift) << some << " of " << all;
          if (shift == 1 && cta % 2 == 0 && before + 1 < some) {
            ASSERT_EQ(here, spread_before(spread, cta + 2) - before == 2) << some << " of " << all;
          }
        }
        ASSERT_EQ(spread_before(spread, 0), 0U);
        ASSERT_EQ(spread_before(spread, spread.all), some) << all;
        ASSERT_EQ(spread_before(spread, spread.all + 11), some) << all;
      }
    }
  }
  EXPECT_EQ(spread_before(spread_of(0, 0, 0), 3), 0U) << "nobody walks";
}

TEST(TileShapes, LinesThatCtasShareAreWholeGroupsOfEight) {
  for (int rows = 8; rows <= 256; rows += 8) {
    for (const uint32_t ctas : {1U, 2U, 3U, 4U, 8U}) {
      const int box = lines_of_a_box(rows, ctas);
      EXPECT_EQ(box % 8, 0) << rows << " " << ctas;
      EXPECT_EQ(rows % box, 0) << rows << " " << ctas;
      EXPECT_LE(rows / box, static_cast<int>(ctas)) << rows << " " << ctas;
    }
  }
}

}  // namespace
}  // namespace tilewire::cuda
