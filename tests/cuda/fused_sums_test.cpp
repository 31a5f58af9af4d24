// Which sums the cuda backend's tiles complete, and that what they wait for can come.
// Needs no GPU.
#include "backends/cuda/fused_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/remarks.hpp"
#include "lower/passes.hpp"
#include "lower/tile_needs.hpp"
#include "tilewire/schedule.hpp"

namespace tilewire::cuda {
namespace {

Plan plan_of(const char* op, int64_t m, const Config& config, int ranks = 4) {
  const Problem problem{.op = op, .m = m, .n = 1024, .k = 512, .dtype = DType::bf16};
  return make_plan(problem, {.num_ranks = ranks}, config);
}

int64_t num_sums(const Plan& plan, int rank) {
  int64_t sums = 0;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank == rank) sums += std::ranges::count(lane.tasks, TaskKind::reduce, &Task::kind);
  }
  return sums;
}

TEST(FusedSums, CompleteAllOfAReduceScatter) {
  const Plan plan = plan_of("gemm_reduce_scatter", 1024, {});
  for (int rank = 0; rank < 4; ++rank) {
    const auto sums = fused_sums(plan, rank);
    EXPECT_EQ(std::ssize(sums), num_sums(plan, rank));
    for (const FusedSum& sum : sums) {
      EXPECT_EQ(sum.own, rank);
      ASSERT_EQ(sum.waits.size(), 1u);
      EXPECT_EQ(sum.waits[0].at_least, 3);
    }
  }
}

TEST(FusedSums, CompleteAllReduceRoundsAndCopyLanes) {
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce"}) {
    for (const int rounds : {1, 2, 4}) {
      const Plan plan = plan_of(op, 1024, {.rounds = rounds});
      EXPECT_EQ(std::ssize(fused_sums(plan, 2)), num_sums(plan, 2)) << op << ", " << rounds << " rounds";
    }
    for (const int owners : {2, 3, 4}) {
      const Plan plan = plan_of(op, 2048, {.cluster_m = 2, .group_m = 16, .group_owners = owners});
      EXPECT_EQ(std::ssize(fused_sums(plan, 2)), num_sums(plan, 2)) << op << ", " << owners << " owners together";
    }
    const Plan copies = plan_of(op, 1024, {.transport = Transport::copy_engine});
    EXPECT_EQ(std::ssize(fused_sums(copies, 1)), num_sums(copies, 1)) << op;
  }
}

TEST(FusedSums, LeaveWhatWaitsForLaterTilesOrIsReadByOthers) {
  const auto none = [](const Plan& plan) { return fused_sums(plan, 0).empty(); };
  EXPECT_TRUE(none(plan_of("gemm_reduce_scatter", 1024, {.reduce_when = ReduceWhen::after})));
  EXPECT_TRUE(none(plan_of("gemm_reduce_scatter", 1024, {.reduce_mode = ReduceMode::pull})));
  EXPECT_TRUE(none(plan_of("gemm_reduce_scatter", 1024, {.split_k = 2})));
  EXPECT_TRUE(none(plan_of("gemm_reduce_scatter", 1024, {.wire = DType::fp32})));
  EXPECT_TRUE(none(plan_of("gemm_reduce_scatter", 1024, {.tile_m = 256, .tile_n = 192})));
  EXPECT_TRUE(none(plan_of("gemm_all_reduce", 1024, {.algorithm = Algorithm::one_shot})));
  EXPECT_TRUE(none(plan_of("gemm_all_reduce", 1024, {.schedule = "two_stream"})));
}

TEST(FusedSums, OfNaiveOrderWaitForEarlierTilesOnly) {
  // Row by row, each rank makes a piece at the same position: no tile may wait for one that is not before it.
  EXPECT_TRUE(fused_sums(plan_of("gemm_reduce_scatter", 1024, {.tile_order = TileOrder::naive}), 0).empty());
}

TEST(FusedSums, OfPairsWaitForWholePairsBefore) {
  // Four owners of two tiles each: the parts of the first local tile come from positions just before it.
  const Config pairs{.cluster_m = 2};
  const Problem few{.op = "gemm_reduce_scatter", .m = 1024, .n = 256, .k = 512, .dtype = DType::bf16};
  EXPECT_TRUE(fused_sums(make_plan(few, {.num_ranks = 4}, pairs), 1).empty());
  const Plan many = plan_of("gemm_reduce_scatter", 4096, pairs);
  EXPECT_EQ(std::ssize(fused_sums(many, 1)), num_sums(many, 1));
}

TEST(FusedSums, LeaveTilesOfTwoOwners) {
  const Plan plan = plan_of("gemm_reduce_scatter", 540, {});  // shards of 135 rows, too few for tiles of their own
  for (int rank = 0; rank < 4; ++rank) {
    const auto sums = fused_sums(plan, rank);
    EXPECT_LT(std::ssize(sums), num_sums(plan, rank));
    EXPECT_EQ(sums.empty(), rank == 1 || rank == 2) << "whole tiles are those of the first and the last rank";
  }
}

TEST(FusedSums, AreAllInTilesWhereShardsHaveTilesOfTheirOwn) {
  const Plan plan = plan_of("gemm_reduce_scatter", 1000, {});  // shards of 250 rows
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(std::ssize(fused_sums(plan, rank)), num_sums(plan, rank));
}

/// Whether a rank's tiles load in pairs when the plan is lowered.
bool may_end_in_pairs(Plan plan, int rank) {
  static_cast<void>(lowering::pair_tiles(plan, {}));
  return std::ranges::any_of(plan.lanes, [&](const Lane& lane) {
    return lane.rank == rank &&
           std::ranges::any_of(lane.tasks, [](const Task& task) { return task.gemm.cluster_m > 1; });
  });
}

/// Peers add in turn; what they have added is the one part that an owner's tile waits for.
TEST(FusedSums, CompleteWhatPeersHaveAdded) {
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce"}) {
    Problem problem{.op = op, .m = 2048, .n = 1024, .k = 512, .dtype = DType::bf16, .reduction = Reduction::any};
    const Config config{.cluster_m = 2, .group_m = 4, .reduce_mode = ReduceMode::accumulate};
    const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
    const auto sums = fused_sums(plan, 2);
    EXPECT_EQ(std::ssize(sums), num_sums(plan, 2));
    for (const FusedSum& sum : sums) {
      ASSERT_EQ(sum.waits.size(), 1u);
      EXPECT_EQ(sum.waits[0].at_least, 1) << "the last to add has posted";
    }
    EXPECT_TRUE(may_end_in_pairs(plan, 2)) << op;
    // Tile by tile, every rank is at the same place: a pair could hold up what it waits for.
    Config naive = config;
    naive.tile_order = TileOrder::naive;
    EXPECT_FALSE(may_end_in_pairs(make_plan(problem, {.num_ranks = 4}, naive), 2)) << op;
  }
}

/// On a ring the first tile stores at the next rank; each later one adds its own part to what came, and hands it on.
TEST(FusedSums, CompleteEveryHopOfARing) {
  for (const int rounds : {1, 2, 4}) {
    const Problem problem{
        .op = "gemm_reduce_scatter", .m = 8192, .n = 2048, .k = 512, .dtype = DType::bf16, .reduction = Reduction::any};
    const Config config{.cluster_m = 2, .group_m = 16, .algorithm = Algorithm::ring, .rounds = rounds};
    const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
    for (int rank = 0; rank < 4; ++rank) {
      const auto sums = fused_sums(plan, rank);
      EXPECT_EQ(std::ssize(sums), 3 * 16 * 8) << "tiles of all owners but the one whose tiles leave first";
      EXPECT_EQ(std::ssize(sums), num_sums(plan, rank)) << rounds << " rounds";
      for (const FusedSum& sum : sums) EXPECT_EQ(sum.own, 1);
      EXPECT_TRUE(may_end_in_pairs(plan, rank));
    }
  }
}

TEST(TileNeeds, CountTilesOfAllRanksThroughCopies) {
  const Plan plan = plan_of("gemm_reduce_scatter", 1024, {.transport = Transport::copy_engine});
  TileNeeds needs(plan);
  const FusedSum first = fused_sums(plan, 0).front();
  const auto lane = std::ranges::find_if(plan.lanes, [](const Lane& l) { return l.rank == 0 && l.name == "reduce"; });
  for (const Wait& wait : lane->tasks[first.sum].waits) {
    // All tiles of the other three owners come first: positions 1 to 24, after the handshake.
    if (wait.signal.rank == 0 && signal_name(plan, wait.signal).starts_with("arrived")) {
      EXPECT_EQ(needs.of(wait.signal), 24);
    }
  }
}

TEST(Remarks, NameSlowTilesAndSumsThatTilesComplete) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(remarks_on(plan_of("gemm_reduce_scatter", 1024, {})),
            (Lines{"8 of 8 sums are completed by their last tile where tensors are aligned to 16 bytes"}));
  EXPECT_EQ(remarks_on(plan_of("gemm_reduce_scatter", 1024, {.tile_m = 32})),
            (Lines{"slow: tiles run without tensor cores: tiles of 32 x 256 are not compiled"}));
  const Problem problem{.op = "all_gather_gemm", .m = 512, .n = 512, .k = 512, .dtype = DType::fp32};
  EXPECT_EQ(remarks_on(make_plan(problem, {.num_ranks = 2}, {})),
            (Lines{"slow: tiles run without tensor cores: type fp32"}));
  EXPECT_EQ(remarks_on(plan_of("all_gather_gemm", 1024, {})), Lines{});
  const Problem odd{.op = "all_gather_gemm", .m = 512, .n = 512, .k = 100, .dtype = DType::bf16};
  EXPECT_EQ(remarks_on(make_plan(odd, {.num_ranks = 2}, {})),
            (Lines{"slow: tiles run without tensor cores: rows of a have 200 bytes, want a multiple of 16"}));
}

}  // namespace
}  // namespace tilewire::cuda
