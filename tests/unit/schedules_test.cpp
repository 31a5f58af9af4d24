// Orders, chunks and rules of the schedules, and the papers' worked examples.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>

#include "every.hpp"
#include "operator_names.hpp"
#include "schedules/tile_order.hpp"
#include "schedules/variants.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

std::vector<const Lane*> lanes_named(const Plan& plan, int rank, const std::string& name) {
  std::vector<const Lane*> lanes;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank == rank && lane.name == name) lanes.push_back(&lane);
  }
  return lanes;
}

const Lane& lane_named(const Plan& plan, int rank, const std::string& name) {
  return *lanes_named(plan, rank, name).at(0);
}

/// Distinct values in order of first appearance.
std::vector<int> distinct(const std::vector<int>& values) {
  std::vector<int> seen;
  for (const int value : values) {
    if (std::ranges::find(seen, value) == seen.end()) seen.push_back(value);
  }
  return seen;
}

/// The owners of the rows of a rank's tiles, in the order of its lane.
std::vector<int> owners_in_order(const Plan& plan, int rank) {
  std::vector<int> owners;
  const int64_t m = note_of(plan).problem.m;
  for (const Task& task : lane_named(plan, rank, "tiles").tasks) {
    if (task.kind != TaskKind::compute) continue;
    const Region& a = task.reads[0];
    const bool local = plan.buffers[a.buffer].name == "a" && plan.op == "all_gather_gemm";
    const int64_t row = local ? shard_of(m, plan.team.num_ranks, rank).begin + a.row : a.row;
    owners.push_back(static_cast<int>(owners_of({row, row + 1}, m, plan.team.num_ranks).begin));
  }
  return distinct(owners);
}

TEST(TileOrder, FluxCommunicationOrder) {
  // Flux 4.3: rank 5 of 8 goes to 6, 7, 0, 1, 2, 3, 4.
  EXPECT_EQ(peers_after(8, 5), (std::vector{6, 7, 0, 1, 2, 3, 4}));
  EXPECT_EQ(peers_before(8, 5), (std::vector{4, 3, 2, 1, 0, 7, 6}));
  EXPECT_TRUE(peers_after(1, 0).empty());
}

TEST(TileOrder, FluxPullPlanFollowsIt) {
  const Problem problem{.op = "all_gather_gemm", .m = 1024, .n = 256, .k = 64};
  const Config config{.direction = Direction::pull, .transport = Transport::copy_engine};
  const Plan plan = make_plan(problem, {.num_ranks = 8}, config);
  std::vector<int> sources;
  for (const Task& task : lane_named(plan, 5, "gather").tasks) {
    if (task.kind == TaskKind::copy && task.reads[0].rank != 5) sources.push_back(task.reads[0].rank);
  }
  EXPECT_EQ(sources, (std::vector{6, 7, 0, 1, 2, 3, 4}));
  EXPECT_EQ(owners_in_order(plan, 5), (std::vector{5, 6, 7, 0, 1, 2, 3, 4}));
}

TEST(TileOrder, PushedTilesFollowArrival) {
  const Problem problem{.op = "all_gather_gemm", .m = 1024, .n = 256, .k = 64};
  const Plan plan = make_plan(problem, {.num_ranks = 8}, {});
  EXPECT_EQ(owners_in_order(plan, 5), (std::vector{5, 4, 3, 2, 1, 0, 7, 6}));
  Config naive;
  naive.tile_order = TileOrder::naive;
  EXPECT_EQ(owners_in_order(make_plan(problem, {.num_ranks = 8}, naive), 5), (std::vector{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(TileOrder, ReduceScatterEndsAtHome) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 1024, .n = 256, .k = 64};
  for (int rank = 0; rank < 8; ++rank) {
    std::vector<int> want = peers_after(8, rank);
    want.push_back(rank);
    EXPECT_EQ(owners_in_order(make_plan(problem, {.num_ranks = 8}, {}), rank), want);
  }
}

TEST(TileOrder, NoTwoRanksWriteToOneDestinationAtOnce) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 4096, .n = 1024, .k = 64};
  const Plan plan = make_plan(problem, {.num_ranks = 4}, {});
  const size_t tasks = lane_named(plan, 0, "tiles").tasks.size();
  for (size_t i = 1; i < tasks; ++i) {
    std::vector<int> destinations;
    for (int rank = 0; rank < 4; ++rank)
      destinations.push_back(lane_named(plan, rank, "tiles").tasks[i].writes[0].to.rank);
    EXPECT_EQ(distinct(destinations).size(), 4U) << "task " << i;
  }
}

TEST(TileOrder, FusedOperatorPaperFigure7) {
  // Two GPUs, k = 4 tiles: GPU 0 computes and sends 2, 3 first, then makes 0, 1, which it reduces.
  const Problem problem{.op = "gemm_all_reduce", .m = 512, .n = 256, .k = 64};
  const Plan plan = make_plan(problem, {.num_ranks = 2}, {});
  const auto tiles_of = [&](int rank) {
    std::vector<int64_t> tiles;
    for (const Task& task : lane_named(plan, rank, "tiles").tasks) {
      if (task.kind == TaskKind::compute) tiles.push_back(task.reads[0].row / 128);
    }
    return tiles;
  };
  EXPECT_EQ(tiles_of(0), (std::vector<int64_t>{2, 3, 0, 1}));
  EXPECT_EQ(tiles_of(1), (std::vector<int64_t>{0, 1, 2, 3}));
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<int64_t> summed;
    for (const Task& task : lane_named(plan, rank, "reduce").tasks) summed.push_back(task.writes[0].to.row / 128);
    EXPECT_EQ(summed, (std::vector<int64_t>{2 * rank, 2 * rank + 1}));
  }
}

TEST(TileOrder, GroupsOfRowTilesGoByColumn) {
  const std::vector<Tile> tiles = tile_grid(4, 3, 1, 1);
  const std::vector<int> one_stage(tiles.size(), 0);
  const auto tile_order = [&](const Config& config) { return order_tiles(tiles, one_stage, config, LocalTiles::last); };
  EXPECT_EQ(tile_order({.tile_n = 1, .group_m = 2}), (std::vector{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
  EXPECT_EQ(tile_order({.tile_n = 1}), (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  // CTAs that share A take neighbouring tiles of a row.
  EXPECT_EQ(tile_order({.tile_n = 1, .cluster_n = 2, .group_m = 2}),
            (std::vector{0, 1, 3, 4, 2, 5, 6, 7, 9, 10, 8, 11}));
}

TEST(TileOrder, OwnersTogetherGoByColumnAndLocalTilesLate) {
  const std::vector<Tile> tiles = tile_grid(4, 3, 1, 1);
  const std::vector<int> stage = {3, 3, 3, 0, 0, 0, 1, 1, 1, 2, 2, 2};
  const Config pairs{.tile_n = 1, .group_m = 4, .group_owners = 2};
  EXPECT_EQ(order_tiles(tiles, stage, pairs, LocalTiles::last), (std::vector{3, 6, 4, 7, 5, 8, 9, 10, 0, 11, 1, 2}));
  EXPECT_EQ(order_tiles(tiles, stage, pairs, LocalTiles::first), (std::vector{3, 6, 4, 7, 5, 8, 9, 0, 10, 1, 11, 2}));
  // Local rows that are a phase of their own are not late.
  EXPECT_EQ(order_tiles(tiles, stage, {.tile_n = 1, .group_m = 4, .group_owners = 3}, LocalTiles::last),
            (std::vector{3, 6, 9, 4, 7, 10, 5, 8, 11, 0, 1, 2}));
}

TEST(TileOrder, LocalTilesAreNotLateWhereTilesAreLong) {
  Problem problem{.op = "gemm_reduce_scatter", .m = 64, .n = 64, .dtype = DType::bf16};
  Config config{.transport = Transport::tma};
  int ranks = 4;
  const auto mine_of = [&](int64_t k, int64_t tile_n) {
    problem.k = k;
    config.tile_n = tile_n;
    return local_tiles_of_reduction(problem, ranks, config);
  };
  EXPECT_EQ(mine_of(4 * 88 * 64, 256), LocalTiles::last_of_round);
  EXPECT_EQ(mine_of(4 * 87 * 64, 256), LocalTiles::last);
  EXPECT_EQ(mine_of(4 * 48 * 64, 128), LocalTiles::last_of_round);
  EXPECT_EQ(mine_of(0, 128), LocalTiles::last);
  config.tile_m = 256;
  EXPECT_EQ(mine_of(4 * 88 * 64, 128), LocalTiles::last_of_round);
  EXPECT_EQ(mine_of(4 * 87 * 64, 128), LocalTiles::last);
  // Sums that are completed at the end of their own tile, or not by tiles.
  constexpr int64_t kLong = 4 * 200 * 64;
  EXPECT_EQ(mine_of(kLong, 256), LocalTiles::last_of_round);
  problem.out_dtype = DType::fp32;
  EXPECT_EQ(mine_of(kLong, 256), LocalTiles::last);
  problem.out_dtype.reset();
  problem.epilogue = {{EpilogueKind::bias}};
  EXPECT_EQ(mine_of(kLong, 256), LocalTiles::last);
  problem.epilogue.clear();
  config.reduce_mode = ReduceMode::pull;
  EXPECT_EQ(mine_of(kLong, 256), LocalTiles::last);
  config.reduce_mode = ReduceMode::staged;
  ranks = 8;
  EXPECT_EQ(mine_of(2 * kLong, 256), LocalTiles::last);
}

TEST(TileOrder, RoundsTakeACutOfEveryStageAndTheLastOneLate) {
  const std::vector<int> stage = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
  const std::vector<Tile> tiles = tile_grid(3, 4, 1, 1);
  const auto in_rounds = [&](int rounds, LocalTiles mine) {
    return order_tiles(tiles, stage, {.tile_n = 1, .rounds = rounds}, mine);
  };
  const std::vector<int> tile_order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(in_rounds(1, LocalTiles::last), tile_order);
  EXPECT_EQ(in_rounds(2, LocalTiles::last), (std::vector{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(in_rounds(4, LocalTiles::last), (std::vector{0, 4, 1, 5, 8, 2, 6, 9, 3, 7, 10, 11}));
  // In eight rounds the last phase is two rounds late; on a ring the one between is two rounds late, and the last one
  // four.
  const std::vector<Tile> wide = tile_grid(3, 8, 1, 1);
  std::vector<int> stages(24);
  for (int i = 0; i < 24; ++i) stages[i] = i / 8;
  Config eight{.tile_n = 1, .rounds = 8};
  EXPECT_EQ(order_tiles(wide, stages, eight, LocalTiles::last),
            (std::vector{0, 8, 1, 9, 2, 10, 16, 3, 11, 17, 4, 12, 18, 5, 13, 19, 6, 14, 20, 7, 15, 21, 22, 23}));
  eight.algorithm = Algorithm::ring;
  EXPECT_EQ(order_tiles(wide, stages, eight, LocalTiles::last),
            (std::vector{0, 1, 2, 8, 3, 9, 4, 10, 16, 5, 11, 17, 6, 12, 18, 7, 13, 19, 14, 20, 15, 21, 22, 23}));
  // Or not late at all.
  EXPECT_EQ(in_rounds(2, LocalTiles::last_of_round), (std::vector{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
  // A gather makes its local tiles first.
  EXPECT_EQ(in_rounds(2, LocalTiles::first), (std::vector{0, 1, 2, 3, 4, 5, 8, 9, 6, 7, 10, 11}));
  // Columns of three tiles stay whole, and nothing is lost with more rounds than columns.
  EXPECT_EQ(order_tiles(tile_grid(6, 2, 1, 1), stage, {.tile_n = 1, .group_m = 2, .rounds = 2}, LocalTiles::last),
            (std::vector{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 9, 11}));
  std::vector<int> many = in_rounds(7, LocalTiles::last);
  std::ranges::sort(many);
  EXPECT_EQ(many, tile_order);
}

TEST(Shards, CeilingRule) {
  EXPECT_EQ(shard_of(10, 4, 0), (Range{0, 3}));
  EXPECT_EQ(shard_of(10, 4, 3), (Range{9, 10}));
  EXPECT_EQ(shard_of(2, 4, 3), (Range{2, 2}));
  EXPECT_EQ(shard_of(0, 4, 1), (Range{0, 0}));
  EXPECT_EQ(owners_of({2, 7}, 10, 4), (Range{0, 3}));
}

TEST(Chunks, FromAShardDownToATile) {
  const Problem problem{.op = "all_gather_gemm", .m = 1024, .n = 256, .k = 64};
  for (const int64_t rows : {0, 128, 64, 1}) {
    Config config{.chunk_rows = rows, .transport = Transport::copy_engine};
    const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
    const int64_t each = rows == 0 ? 1 : 256 / rows;
    int64_t copies = 0;
    for (const Task& task : lane_named(plan, 1, "gather").tasks) copies += task.kind == TaskKind::copy;
    EXPECT_EQ(copies, 3 * each) << rows;
  }
}

TEST(Pacing, LockstepWaitsForTheNextRank) {
  const Problem problem{.op = "all_gather_gemm", .m = 1024, .n = 256, .k = 64};
  Config config{.transport = Transport::copy_engine};
  config.pacing = Pacing::lockstep;
  const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
  int64_t paced = 0;
  for (const Task& task : lane_named(plan, 2, "gather").tasks) {
    for (const Wait& wait : task.waits) paced += wait.purpose == Purpose::pace;
  }
  EXPECT_EQ(paced, 2);  // phases 2 and 3 of 3
}

TEST(Rules, UnknownNamesListTheKnownOnes) {
  try {
    static_cast<void>(make_plan({.op = "gemm_all_reduce", .m = 1, .n = 1, .k = 1}, {}, {.schedule = "fuse"}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    const std::string text = error.what();
    EXPECT_EQ(text.find("unknown schedule 'fuse'; known: sequential, fused, two_stream, track_trigger"), 0) << text;
    for (const Schedule& schedule : schedules()) EXPECT_NE(text.find(schedule.name), std::string::npos) << text;
  }
  EXPECT_THROW(static_cast<void>(find_operator("gemm")), Error);
}

TEST(Rules, BadProblemsNameTheRule) {
  const auto message = [](const Problem& problem, int ranks) -> std::string {
    try {
      validate(problem, ranks);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const Problem good{.op = "all_gather_gemm", .m = 4, .n = 4, .k = 4};
  Problem bad = good;
  EXPECT_EQ(message(good, 2), "accepted");
  bad.m = -1;
  EXPECT_EQ(message(bad, 2), "m = -1 is negative");
  bad = good;
  bad.m = bad.k = int64_t{1} << 30;
  EXPECT_NE(message(bad, 2).find("overflow"), std::string::npos);
  bad = good;
  bad.dtype = DType::int32;
  EXPECT_EQ(message(bad, 2), "dtype = int32: want fp32, bf16 or fp16");
  bad = good;
  bad.arena = {"q"};
  EXPECT_EQ(message(bad, 2), "arena: all_gather_gemm has no buffer 'q'");
  EXPECT_EQ(message(good, 0), "0 ranks: want 1 to 1024");
  bad = {.op = "all_reduce", .m = 4, .n = 4};
  bad.gathered_output = true;
  EXPECT_NE(message(bad, 2).find("has no gather"), std::string::npos);
}

TEST(Rules, TeamsHaveLinksAndDevicesForAllOrNone) {
  const Problem problem{.op = "gemm_all_reduce", .m = 64, .n = 64, .k = 64};
  const auto message = [&](const Team& team) -> std::string {
    try {
      static_cast<void>(make_plan(problem, team, default_config("fused", problem, team)));
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
      // The same of what comes from a caller's own config.
      EXPECT_THROW(static_cast<void>(make_plan(problem, team, {.schedule = "sequential"})), Error);
      return error.what();
    }
  };
  EXPECT_EQ(message({.num_ranks = 4, .links = {Link{}}}), "team: 1 links for 4 ranks, want one for each ordered pair");
  EXPECT_EQ(message({.num_ranks = 4, .devices = {Device{}, Device{}}}), "team: 2 devices for 4 ranks");
  EXPECT_EQ(message({.num_ranks = 4, .devices = std::vector<Device>(4), .links = std::vector<Link>(16)}), "accepted");
}

TEST(Rules, TheNameOfAScheduleIsItsFirstCandidate) {
  const Problem gather{.op = "all_gather_gemm", .m = 512, .n = 256, .k = 64};
  for (const Team& team : {Team{.num_ranks = 4}, Team{.num_ranks = 2, .devices = std::vector(2, Device{.sms = 132})}}) {
    for (const Schedule& schedule : schedules()) {
      const auto candidates = schedule.candidates(gather, team);
      const Config config = default_config(schedule.name, gather, team);
      EXPECT_EQ(config, candidates.empty() ? Config{.schedule = schedule.name} : candidates.front());
    }
  }
  EXPECT_NE(default_config("fused", gather, {.num_ranks = 4}), Config{.schedule = "fused"}) << "of a gather";
  EXPECT_THROW(static_cast<void>(default_config("fuse", gather, {.num_ranks = 4})), Error);
  EXPECT_THROW(static_cast<void>(default_config("fused", {.op = "all_gather_gemm", .m = -1}, {})), Error);
}

TEST(Rules, NoKnobIsIgnored) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 64, .n = 64, .k = 64};
  const auto refused = [&](const char* knob, const char* value) {
    Config config;
    set_knob(config, knob, value);
    return find_schedule("fused").refuses(problem, {.num_ranks = 2}, config).has_value();
  };
  EXPECT_TRUE(refused("direction", "pull"));
  EXPECT_TRUE(refused("release", "all"));
  EXPECT_TRUE(refused("pacing", "lockstep"));
  EXPECT_TRUE(refused("chunk_rows", "8"));
  EXPECT_TRUE(refused("reduce_mode", "accumulate"));
  EXPECT_TRUE(refused("algorithm", "ring"));
  EXPECT_FALSE(refused("reduce_mode", "pull"));
  EXPECT_FALSE(refused("tile_m", "64"));
  EXPECT_TRUE(refused("launches", "2"));
  EXPECT_FALSE(find_schedule("two_stream")
                   .refuses({.op = "gemm_all_reduce", .m = 64, .n = 64, .k = 64}, {.num_ranks = 2},
                            {.schedule = "two_stream", .launches = 2}));
}

/// Whether two plans have the same work, whatever their configs.
bool same_work(const Plan& x, const Plan& y) { return x.lanes == y.lanes && x.buffers == y.buffers; }

TEST(Rules, EveryAcceptedKnobChangesThePlan) {
  const std::vector<std::pair<const char*, const char*>> changes{
      {"tile_m", "16"},          {"tile_n", "16"},          {"group_m", "2"},          {"split_k", "2"},
      {"tile_workers", "3"},     {"reduce_workers", "2"},   {"copy_workers", "2"},     {"chunk_rows", "7"},
      {"direction", "pull"},     {"algorithm", "ring"},     {"algorithm", "one_shot"}, {"reduce_mode", "pull"},
      {"tile_order", "naive"},   {"tile_order", "in_step"}, {"release", "all"},        {"reduce_mode", "accumulate"},
      {"reduce_when", "after"},  {"copy_lanes", "2"},       {"wire", "fp32"},          {"transport", "copy_engine"},
      {"pacing", "lockstep"},    {"compute", "library"},    {"collective", "library"}, {"dispatch", "per_rank"},
      {"dispatch", "per_expert"}};
  for (const char* op : testing::all_operator_names()) {
    // A block of a rank has several tiles, and more than 7 rows.
    const int64_t m = has_own_b(find_operator(op).structure) ? 4 * 96 : 96;
    const Problem problem = testing::with_experts({.op = op, .m = m, .n = 64, .k = 64, .reduction = Reduction::any});
    const Team team{.num_ranks = 4};
    for (const Config& config : testing::every(all_variants(problem, team, {.tile_m = 8, .tile_n = 8}))) {
      const Plan plan = make_plan(problem, team, config);
      for (const auto& [knob, value] : changes) {
        Config changed = config;
        set_knob(changed, knob, value);
        if (changed == config || find_schedule(config.schedule).refuses(problem, team, changed)) continue;
        EXPECT_FALSE(same_work(plan, make_plan(problem, team, changed)))
            << op << ": " << knob << " = " << value << " changes nothing in " << to_string(config);
      }
    }
  }
}

TEST(Make, LargePlanIsQuick) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 8192, .n = 8192, .k = 8192};
  const Plan plan = make_plan(problem, {.num_ranks = 8}, {});
  EXPECT_EQ(num_tasks(plan), 8 * (64 * 32 + 64 * 32 / 8 + 1));
}

}  // namespace
}  // namespace tilewire
