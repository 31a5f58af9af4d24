// Which sums are completed by tiles, and that their waits cannot deadlock.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/gemm_tasks.hpp"
#include "lower/passes.hpp"
#include "lower/tensor_cores.hpp"
#include "lower/tile_needs.hpp"
#include "tilewire/check.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"

namespace tilewire {
namespace {

/// The tiles of a rank that complete sums in the lowered plan. Requires that it is proven, and survives JSON.
const Plan& fused_plan(const Plan& plan) {
  static Plan last;
  static Plan fused;
  if (plan == last) return fused;
  last = fused = plan;
  static_cast<void>(lowering::fuse_sums(fused, {}));
  const CheckResult proof = check(fused);
  EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
  EXPECT_EQ(from_json_text<Plan>(to_string(fused)), fused);
  return fused;
}

/// The tiles of a rank that complete sums when the plan is lowered.
std::vector<Task> fused_sums(const Plan& plan, int rank) {
  const Plan& fused = fused_plan(plan);
  std::vector<Task> tiles;
  int64_t sums = 0;
  for (const Lane& lane : fused.lanes) {
    EXPECT_FALSE(lane.tasks.empty()) << lane.name;
    sums += std::ranges::count(lane.tasks, TaskKind::reduce, &Task::kind);
    for (const Task& task : lane.tasks) {
      if (task.addends.empty()) continue;
      ++sums;
      if (lane.rank == rank) tiles.push_back(task);
    }
  }
  int64_t before = 0;
  for (const Lane& lane : plan.lanes) before += std::ranges::count(lane.tasks, TaskKind::reduce, &Task::kind);
  EXPECT_EQ(sums, before) << "no sum is lost";
  return tiles;
}

/// The waits of a tile for its addends.
std::vector<Wait> waits_for_addends(const Task& tile) {
  std::vector<Wait> waits;
  for (const Wait& wait : tile.waits) {
    if (is_for_addends(tile, wait)) waits.push_back(wait);
  }
  return waits;
}

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
    for (const Task& tile : sums) {
      EXPECT_EQ(tile.product_place, rank);
      EXPECT_EQ(tile.addends.size(), 3u);
      const auto waits = waits_for_addends(tile);
      ASSERT_EQ(waits.size(), 1u);
      EXPECT_EQ(waits[0].at_least, 3);
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
  // Row by row, each rank makes a chunk at the same position: a tile may wait only for earlier tiles.
  EXPECT_TRUE(fused_sums(plan_of("gemm_reduce_scatter", 1024, {.tile_order = TileOrder::naive}), 0).empty());
}

TEST(FusedSums, OfPairsWaitForWholePairsBefore) {
  // Four owners of two tiles each: the partials of the first local tile come from positions just before it.
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

/// Whether a rank's tiles load in pairs in the lowered plan.
bool may_end_in_pairs(Plan plan, int rank) {
  static_cast<void>(lowering::unpair_tiles(plan, {}));
  return std::ranges::any_of(plan.lanes, [&](const Lane& lane) {
    return lane.rank == rank &&
           std::ranges::any_of(lane.tasks, [](const Task& task) { return task.gemm.cluster_m > 1; });
  });
}

/// Peers add in place, one after another; an owner's tile waits for one partial, their sum.
TEST(FusedSums, CompleteWhatPeersHaveAdded) {
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce"}) {
    Problem problem{.op = op, .m = 2048, .n = 1024, .k = 512, .dtype = DType::bf16, .reduction = Reduction::any};
    const Config config{.cluster_m = 2, .group_m = 4, .reduce_mode = ReduceMode::accumulate};
    const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
    const auto sums = fused_sums(plan, 2);
    EXPECT_EQ(std::ssize(sums), num_sums(plan, 2));
    for (const Task& tile : sums) {
      const auto waits = waits_for_addends(tile);
      ASSERT_EQ(waits.size(), 1u);
      EXPECT_EQ(waits[0].at_least, 1) << "the last to add has posted";
    }
    EXPECT_TRUE(may_end_in_pairs(plan, 2)) << op;
    // Tile by tile, every rank is at the same place: a pair could hold up what it waits for.
    Config naive = config;
    naive.tile_order = TileOrder::naive;
    EXPECT_FALSE(may_end_in_pairs(make_plan(problem, {.num_ranks = 4}, naive), 2)) << op;
  }
}

/// On a ring the first tile stores at the next rank; each later one adds its own partial to the received one, and sends
/// it on.
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
      for (const Task& tile : sums) EXPECT_EQ(tile.product_place, 1);
      EXPECT_TRUE(may_end_in_pairs(plan, rank));
    }
  }
}

TEST(TileNeeds, CountTilesOfAllRanksThroughCopies) {
  const Plan plan = plan_of("gemm_reduce_scatter", 1024, {.transport = Transport::copy_engine});
  TileNeeds needs(plan);
  const Task first = fused_sums(plan, 0).front();
  for (const Wait& wait : first.waits) {
    // All tiles of the other three owners come first: positions 1 to 24, after the handshake.
    if (wait.signal.rank == 0 && signal_name(plan, wait.signal).starts_with("arrived")) {
      EXPECT_EQ(needs.of(wait.signal), 24);
    }
  }
}

/// The rule of the first violation; `unsupported`, which no plan here violates, if there is none.
Rule rule_of(const CheckResult& result) { return result.ok() ? Rule::unsupported : result.violations[0].rule; }

TEST(FusedSums, ThatAreWrongAreRefused) {
  Plan good = plan_of("gemm_reduce_scatter", 1024, {});
  static_cast<void>(lowering::fuse_sums(good, {}));
  const auto damaged = [&](const auto& apply) {
    Plan plan = good;
    for (Lane& lane : plan.lanes) {
      const auto tile = std::ranges::find_if(lane.tasks, [](const Task& task) { return !task.addends.empty(); });
      if (tile == lane.tasks.end()) continue;
      apply(*tile);
      break;
    }
    return check(plan);
  };
  const CheckResult early = damaged([](Task& tile) { tile.waits.back().from_col = 0; });
  EXPECT_TRUE(early.ok()) << "it waits sooner than it must";
  EXPECT_EQ(rule_of(damaged([](Task& tile) { tile.waits.pop_back(); })), Rule::coverage) << "does not wait for them";
  EXPECT_EQ(rule_of(damaged([](Task& tile) { --tile.waits.back().at_least; })), Rule::race) << "not for all of them";
  EXPECT_EQ(rule_of(damaged([](Task& tile) { ++tile.waits.back().at_least; })), Rule::progress) << "for its own post";
  EXPECT_EQ(rule_of(damaged([](Task& tile) { tile.addends.pop_back(); })), Rule::coverage) << "one is missing";
  EXPECT_EQ(rule_of(damaged([](Task& tile) { tile.addends[1] = tile.addends[0]; })), Rule::coverage) << "one twice";
  EXPECT_EQ(rule_of(damaged([](Task& tile) { tile.addends[0].rows -= 1; })), Rule::structure);
  EXPECT_EQ(rule_of(damaged([](Task& tile) { tile.product_place = 9; })), Rule::structure);
  EXPECT_EQ(rule_of(damaged([](Task& tile) { tile.kind = TaskKind::gemm_call; })), Rule::structure);
}

TEST(FusedSums, ThatKernelsDoNotTakeMakeTilesSlow) {
  Plan good = plan_of("gemm_reduce_scatter", 1024, {});
  static_cast<void>(lowering::fuse_sums(good, {}));
  EXPECT_EQ(slow_tiles(good), std::nullopt);
  const auto reason = [&](const auto& apply) {
    Plan plan = good;
    for (Lane& lane : plan.lanes) {
      const auto tile = std::ranges::find_if(lane.tasks, [](const Task& task) { return !task.addends.empty(); });
      if (tile != lane.tasks.end()) apply(plan, *tile);
    }
    return slow_tiles(plan).value_or("none");
  };
  EXPECT_EQ(reason([](Plan&, Task& tile) { tile.addends.resize(20, tile.addends[0]); }),
            "a tile of 128 x 256 with 20 addends, at most 12");
  EXPECT_EQ(reason([](Plan& plan, Task& tile) {
              plan.buffers.push_back({.name = "wide", .dtype = DType::fp32, .rows = 1024, .cols = 1024});
              for (Region& addend : tile.addends) addend.buffer = static_cast<int>(plan.buffers.size()) - 1;
            }),
            "addends of fp32");
}

}  // namespace
}  // namespace tilewire
