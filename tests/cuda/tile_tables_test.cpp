// A rank's tables with tiles that load local rows in place, and without the copies that become unnecessary.
// Needs no GPU: fake tensor maps contain their arguments.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cuda/made_up_maps.hpp"
#include "cuda/made_up_tables.hpp"
#include "operators/plan_changes.hpp"
#include "tilewire/make_plan.hpp"

namespace tilewire::cuda {
namespace {

/// Tiles of 256 rows over two shards of 128 rows, on four ranks.
Plan gather(TileOrder order) {
  Config config{.tile_m = 256, .tile_n = 192, .group_m = 8, .chunk_rows = 64, .chunk_cols = 256};
  config.tile_order = order;
  config.copy_workers = order == TileOrder::in_step ? 2 : 0;
  return make_plan({.op = "all_gather_gemm", .m = 512, .n = 512, .k = 512, .dtype = DType::bf16}, {.num_ranks = 4},
                   config);
}

/// The number of targets of each copy op.
std::vector<int> targets_of(const RankTables& tables) {
  std::vector<int> targets;
  for (const OpRecord& step : tables.workers.ops) {
    if (step.code == OpCode::copy) targets.push_back(step.num_targets);
  }
  return targets;
}

TEST(TileTables, TilesTakeLocalRowsWhereTheyAre) {
  const Plan plan = gather(TileOrder::in_step);
  const RankTables tables = tables_of(plan, true, 3);
  ASSERT_EQ(tables.gemm.splits.size(), 1u);
  const RowSplit& split = tables.gemm.splits[0];
  EXPECT_EQ(split.first, 128);
  EXPECT_EQ(split.row, 0) << "of the rank's input";
  EXPECT_EQ(asked_for(tables, split.map).rows, 128u);
  EXPECT_EQ(asked_for(tables, split.map).box_rows, 128u);
  int shared = 0;
  for (const TileRecord& tile : tables.gemm.tiles) {
    if (tile.rows == 0) continue;
    shared += tile.split;
    EXPECT_EQ(tile.split, tile.a_row == 256 ? 1 : 0);
    EXPECT_EQ(asked_for(tables, tile.a_map).box_rows, tile.split == 1 ? 128u : 256u);
    EXPECT_EQ(asked_for(tables, tile.a_map).rows, 512u) << "gathered";
  }
  EXPECT_EQ(shared, 1) << "column of tiles";
  EXPECT_EQ(targets_of(tables), std::vector<int>(4, 3)) << "two chunks, two cuts of columns, three peers";
}

TEST(TileTables, EachOutputHasMapsOfItsOwn) {
  const Problem problem{.op = "all_gather_gemm", .m = 512, .n = 512, .k = 512, .more_n = {1024}, .dtype = DType::bf16};
  const RankTables tables = tables_of(make_plan(problem, {.num_ranks = 4}, {.tile_n = 64}), true, 3);
  int64_t of_first = 0;
  int64_t of_second = 0;
  for (const TileRecord& tile : tables.gemm.tiles) {
    const int64_t cols = asked_for(tables, tile.b_map).rows;
    cols == 128 ? ++of_first : ++of_second;
    EXPECT_TRUE(cols == 128 || cols == 256) << cols;
    EXPECT_LT(tile.b_col, cols) << "counted from its own first column";
  }
  EXPECT_EQ(of_second, 2 * of_first);
  EXPECT_GT(of_first, 0);
}

TEST(TileTables, CopiesThatNobodyNeedsStillPost) {
  const Plan plan = gather(TileOrder::rank_shifted);
  const RankTables tables = tables_of(plan, true, 3);
  int posts = 0;
  int copies = 0;
  for (const LaneRecord& lane : tables.workers.lanes) {
    if (lane.sync_only) continue;
    for (uint32_t i = 0; i < lane.num_ops; ++i) {
      const OpRecord& step = tables.workers.ops[lane.first_op + i];
      copies += step.code == OpCode::copy ? 1 : 0;
      if (step.code == OpCode::sync) posts += step.num_posts;
    }
  }
  EXPECT_EQ(posts, 4) << "two chunks of own rows, two cuts of columns";
  EXPECT_EQ(copies, 3 * 4);
}

/// Tensor copies cannot load an unaligned input: worker CTAs multiply, also with rows of A from two places.
TEST(TileTables, UnalignedRowsAreMultipliedByWorkers) {
  const Plan plan = gather(TileOrder::in_step);
  const RankTables tables = tables_of(plan, true, 3, false, "a");
  EXPECT_TRUE(tables.gemm.tiles.empty());
  EXPECT_EQ(tables.gemm_ctas, 0u);
  EXPECT_EQ(tables.workers.helper_ctas, 0u);
  int split = 0;
  for (const OpRecord& step : tables.workers.ops) {
    if (step.code != OpCode::multiply) continue;
    EXPECT_EQ(step.num_sources, step.rows_below > 0 ? 3 : 2);
    EXPECT_EQ(step.rows_below % 128, 0);
    split += step.rows_below > 0 ? 1 : 0;
  }
  EXPECT_EQ(split, 1) << "column of tiles";
  EXPECT_EQ(targets_of(tables), std::vector<int>(4, 3)) << "own rows are not copied";
}

/// The tables of a reduce-scatter over four ranks, in pairs of tiles.
RankTables scatter(const Shape& out, int64_t k, int64_t group_m, int rounds) {
  Config config{.tile_m = 128, .tile_n = 256, .cluster_m = 2, .group_m = group_m, .transport = Transport::tma};
  config.rounds = rounds;
  const Problem problem{.op = "gemm_reduce_scatter", .m = out.rows, .n = out.cols, .k = k, .dtype = DType::bf16};
  return tables_of(make_plan(problem, {.num_ranks = 4}, config));
}

TEST(TileTables, EveryCtaHasAsManySumsWhereOwnTilesAreAmongOthers) {
  const RankTables tables = scatter({4096, 8192}, 4096, 8, 16);
  ASSERT_EQ(tables.gemm_ctas, 128u);
  std::vector<int> sums(tables.gemm_ctas, 0);
  std::vector<int> of_turn(tables.gemm.tiles.size() / sums.size(), 0);
  for (size_t i = 0; i < tables.gemm.tiles.size(); ++i) {
    const int count = tables.gemm.tiles[i].num_partials > 0 ? 1 : 0;
    sums[i % sums.size()] += count;
    of_turn[i / sums.size()] += count;
  }
  EXPECT_EQ(of_turn.size(), 8u);
  EXPECT_LE(std::ranges::count(of_turn, 0), 3) << "they come in most turns";
  EXPECT_EQ(std::ranges::min(sums), 2);
  EXPECT_EQ(std::ranges::max(sums), 2);
}

TEST(TileTables, TilesStayWhereSumsWouldHaveToComeEarlier) {
  const RankTables tables = scatter({1024, 12288}, 49152, 16, 3);
  std::vector<int64_t> tasks;
  for (size_t i = 0; i < tables.gemm.tiles.size(); i += 2)
    tasks.push_back(tables.names[tables.gemm.tiles[i].task].task);
  EXPECT_TRUE(std::ranges::is_sorted(tasks));
  EXPECT_EQ(std::ranges::count_if(tables.gemm.tiles, [](const TileRecord& tile) { return tile.num_partials > 0; }), 96);
}

/// The kernel makes the tiles, the streams the library calls; they share the SMs.
TEST(TileTables, TilesBesideCallsOfTheLibrary) {
  const Problem problem{.op = "all_gather_gemm", .m = 2048, .n = 2048, .k = 512, .dtype = DType::bf16};
  Plan plan = make_plan(problem, {.num_ranks = 2},
                        {.chunk_rows = 128, .transport = Transport::copy_engine, .compute = Provider::library});
  testing::make_tiles_of_calls(plan);
  const RankTables tables = tables_of(plan);
  EXPECT_EQ(tables.gemm.tiles.size(), 32U);
  EXPECT_TRUE(
      std::ranges::all_of(tables.gemm.tiles, [](const TileRecord& t) { return t.rows == 128 && t.cols == 128; }));
  int calls = 0;
  for (const StreamWork& work : tables.works) {
    const auto* gemm = std::get_if<LibraryGemm>(&work.what);
    if (gemm == nullptr) continue;
    ++calls;
    EXPECT_GE(gemm->sms, 16);
    EXPECT_LE(gemm->sms + static_cast<int>(tables.gemm_ctas), 132);
  }
  EXPECT_EQ(calls, 5);
  EXPECT_TRUE(tables.lanes_apart);
  EXPECT_GT(tables.gemm_ctas, 0U);
}

/// Few rows: one table for all tiles and sums, as CTAs differ in their columns alone.
TEST(TileTables, TheGemvKernelHasOneTable) {
  const Problem problem{.op = "gemm_all_reduce", .m = 3, .n = 200, .k = 512, .dtype = DType::bf16};
  const Plan plan =
      make_plan(problem, {.num_ranks = 4},
                {.tile_m = 16, .tile_n = 64, .transport = Transport::ll, .algorithm = Algorithm::one_shot});
  const RankTables tables = tables_of(plan, true, 2);
  ASSERT_TRUE(tables.gemv.has_value());
  const GemvTable& gemv = *tables.gemv;
  EXPECT_EQ(gemv.ctas, 4u);
  EXPECT_EQ(gemv.rows, 3);
  EXPECT_EQ(gemv.cols, 200);
  EXPECT_EQ(gemv.tile_cols, 64);
  EXPECT_EQ(gemv.depth, 128);
  EXPECT_EQ(gemv.exchange.num_peers, 3);
  EXPECT_EQ(gemv.sum.num_partials, 4);
  EXPECT_EQ(gemv.sum.own_partial, 2);
  EXPECT_EQ(gemv.sum.num_targets, 1);
  EXPECT_EQ(gemv.exchange.num_waits, 0) << "LL data are double-buffered";
  EXPECT_EQ(tables.workers.lanes.size(), 0u);
  EXPECT_EQ(tables.names.size(), 2 * 4u);
  EXPECT_TRUE(serves_any_address(tables));
  const RankTables unaligned = tables_of(plan, true, 2, false, "b");
  EXPECT_FALSE(unaligned.gemv.has_value());
  EXPECT_EQ(unaligned.workers.lanes.size(), 2u) << "worker CTAs make tiles and sums";
}

/// Both layouts of B, fp32, and pairs of columns.
TEST(TileTables, TheGemvKernelTakesEveryTypeAndLayout) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
      for (const bool pairs : {false, true}) {
        Problem problem{.op = "all_gather_gemm", .m = 3, .n = 200, .k = 512, .dtype = dtype, .b_layout = layout};
        if (pairs) problem.epilogue = {{EpilogueKind::swiglu_pairs}};
        const RankTables tables =
            tables_of(make_plan(problem, {.num_ranks = 1}, {.tile_m = 16, .tile_n = 32}), true, 0);
        ASSERT_TRUE(tables.gemv.has_value());
        EXPECT_EQ(tables.gemv->ctas, 7u);
        EXPECT_EQ(tables.gemv->tile_cols, 32);
        EXPECT_EQ(tables.gemv->cols, 200);
        EXPECT_EQ(tables.gemv->depth, 512);
        EXPECT_EQ(tables.gemv->dtype, dtype);
        EXPECT_EQ(tables.gemv->b_layout, layout);
        EXPECT_EQ(tables.gemv->pairs, pairs);
        EXPECT_EQ(tables.gemv->sum.num_steps, 0);
      }
    }
  }
}

TEST(TileTables, ARankAloneHasTilesWithoutSums) {
  const Problem problem{.op = "all_gather_gemm", .m = 3, .n = 200, .k = 512, .dtype = DType::bf16};
  const Plan plan = make_plan(problem, {.num_ranks = 1}, {.tile_m = 16, .tile_n = 64});
  const RankTables tables = tables_of(plan, true, 0);
  ASSERT_TRUE(tables.gemv.has_value());
  EXPECT_EQ(tables.gemv->ctas, 4u);
  EXPECT_EQ(tables.gemv->exchange.num_peers, 0);
  EXPECT_EQ(tables.gemv->sum.num_partials, 1);
  EXPECT_EQ(tables.names.size(), 4u);
  EXPECT_FALSE(tables_of(plan, true, 0, false, "b").gemv.has_value());
  // More tiles than SMs.
  const Problem wide{.op = "all_gather_gemm", .m = 1, .n = 28672, .k = 512, .dtype = DType::bf16};
  const RankTables waves = tables_of(make_plan(wide, {.num_ranks = 1}, {.tile_m = 16, .tile_n = 112}), true, 0);
  ASSERT_TRUE(waves.gemv.has_value());
  EXPECT_EQ(waves.gemv->ctas, 256u);
}

TEST(TileTables, TheKernelOfRowsTakesEqualParts) {
  const Problem problem{.op = "all_reduce", .m = 3, .n = 1000, .dtype = DType::bf16};
  const auto rows_of = [&](int64_t cols) {
    const Config config{.tile_m = 1, .tile_n = cols, .transport = Transport::ll, .algorithm = Algorithm::one_shot};
    return tables_of(make_plan(problem, {.num_ranks = 2}, config), true, 1).rows;
  };
  const std::optional<RowTable> rows = rows_of(200);
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(rows->rows, 3);
  EXPECT_EQ(rows->parts, 5);
  EXPECT_EQ(rows->part_cols, 200);
  EXPECT_FALSE(rows_of(504).has_value()) << "parts of 504 and 496 columns";
}

TEST(TileTables, QuantisedRowsAreUnitsOfEightBytes) {
  for (const int64_t cols : {64, 72}) {  // of 2 rows: at multiples of 16 and of 8 bytes
    Problem problem{.op = "all_reduce", .m = 2, .n = 2 * cols, .dtype = DType::bf16};
    problem.norm = Norm{NormKind::rms, 1e-5, DType::fp8_e4m3};
    const Config config{.tile_m = 1, .tile_n = cols, .transport = Transport::ll, .algorithm = Algorithm::one_shot};
    const RankTables tables = tables_of(make_plan(problem, {.num_ranks = 2}, config), true, 0);
    ASSERT_TRUE(tables.rows.has_value()) << cols;
    const RowNorm& norm = tables.rows->sum.norm;
    EXPECT_TRUE(norm.there);
    EXPECT_EQ(norm.normed.dtype, DType::fp8_e4m3);
    EXPECT_EQ(norm.scale.dtype, DType::fp32);
    EXPECT_NE(norm.scale.data, nullptr);
  }
}

TEST(TileTables, TheKernelOfRowsFollowsACallOfTheLibrary) {
  const Problem problem{
      .op = "gemm_all_reduce", .m = 30, .n = 1000, .k = 512, .dtype = DType::bf16, .b_layout = BLayout::kn};
  const Plan plan = make_plan(problem, {.num_ranks = 2},
                              {.tile_m = 1,
                               .tile_n = 1000,
                               .transport = Transport::ll,
                               .algorithm = Algorithm::one_shot,
                               .compute = Provider::library});
  const RankTables tables = tables_of(plan, true, 1);
  ASSERT_TRUE(tables.rows.has_value());
  EXPECT_TRUE(tables.stream_ordered);
  EXPECT_EQ(tables.works.size(), 1u) << "the call";
  EXPECT_EQ(tables.workers.lanes.size(), 0u) << "no kernel is before the call";
  EXPECT_FALSE(tables.first.has_task);
  EXPECT_EQ(tables.preamble.num_posts, 0u);
  EXPECT_EQ(tables.rows->rows, 30);
  EXPECT_EQ(tables.rows->exchange.num_waits, 0);
}

}  // namespace
}  // namespace tilewire::cuda
