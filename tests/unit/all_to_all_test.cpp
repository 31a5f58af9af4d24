// Plans of GEMM + AllToAll: the destinations and times of stores; knobs without effect are refused.
// Built as part of the target `unit_core`.
#include "schedules/all_to_all.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/variants.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

Problem problem_of(bool arena, int64_t m = 64, int64_t n = 96) {
  Problem problem{.op = "gemm_all_to_all", .m = m, .n = n, .k = 32};
  if (arena) problem.arena = {"c"};
  return problem;
}

Plan plan_of(const Problem& problem, int ranks, Config config = {}) {
  config.tile_m = config.compute == Provider::library ? config.tile_m : 16;
  config.tile_n = config.compute == Provider::library ? config.tile_n : 16;
  Plan plan = make_plan(problem, {.num_ranks = ranks}, config);
  require_proven(plan);
  return plan;
}

std::string reason(const Config& config, const Problem& problem = problem_of(false)) {
  return find_schedule(config.schedule).refuses(problem, {.num_ranks = 4}, config).value_or("");
}

std::vector<const Lane*> lanes_of(const Plan& plan, const std::string& name, int rank = 0) {
  std::vector<const Lane*> lanes;
  for (const Lane& lane : plan.lanes) {
    if (lane.name == name && lane.rank == rank) lanes.push_back(&lane);
  }
  return lanes;
}

int64_t bytes_over_links(const Plan& plan) {
  int64_t bytes = 0;
  for (const LinkTraffic& link : traffic_of(plan)) bytes += link.bytes;
  return bytes;
}

TEST(AllToAll, InTheArenaTilesGoStraightToTheOutputOfTheirOwner) {
  const Plan plan = plan_of(problem_of(true), 4);
  for (const Buffer& buffer : plan.buffers) EXPECT_NE(buffer.scope, Scope::symmetric) << buffer.name;
  const auto tiles = lanes_of(plan, "tiles");
  ASSERT_EQ(tiles.size(), 1U);
  int64_t remote = 0;
  for (const Task& task : tiles[0]->tasks) {
    if (task.kind != TaskKind::compute) continue;
    ASSERT_EQ(task.writes.size(), 1U);
    EXPECT_EQ(plan.buffers[task.writes[0].to.buffer].name, "c");
    // Rank 0's rows, and its peers'.
    EXPECT_LT(task.writes[0].to.row, 16);
    if (task.writes[0].to.rank == 0) continue;
    ++remote;
    EXPECT_EQ(task.waits.size(), 1U);
    EXPECT_EQ(task.posts.size(), 1U);
  }
  EXPECT_EQ(remote, 3 * 2);
}

TEST(AllToAll, PeersComeFirstAndOneselfLast) {
  for (const Transport transport : {Transport::store, Transport::copy_engine}) {
    const Plan plan = plan_of(problem_of(true), 4, {.transport = transport});
    std::vector<int64_t> columns;
    for (const Task& task : lanes_of(plan, "tiles", 1)[0]->tasks) {
      if (task.kind == TaskKind::compute) columns.push_back(task.reads[1].row / 24);
    }
    EXPECT_EQ(columns, (std::vector<int64_t>{2, 2, 3, 3, 0, 0, 1, 1}));
  }
}

TEST(AllToAll, MovesWhatItMust) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const bool arena : {false, true}) {
      const Problem problem = problem_of(arena, 61, 50);
      EXPECT_GT(all_variants(problem, {.num_ranks = ranks}, {.tile_m = 8, .tile_n = 8, .chunk_rows = 5}).size(), 3U);
      for (const Config& config :
           all_variants(problem, {.num_ranks = ranks}, {.tile_m = 8, .tile_n = 8, .chunk_rows = 5})) {
        const Plan plan = make_plan(problem, {.num_ranks = ranks}, config);
        EXPECT_EQ(bytes_over_links(plan), specification_of(problem, ranks).least_bytes) << ranks;
      }
    }
  }
}

TEST(AllToAll, SequentialMakesOneCallOfTheLibrary) {
  const Plan plan = plan_of(problem_of(true), 2, {.schedule = "sequential", .compute = Provider::library});
  int calls = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::gemm_call) continue;
      ++calls;
      EXPECT_EQ(result_shape(task), (Shape{32, 96}));
    }
  }
  EXPECT_EQ(calls, 2);
  const auto sends = lanes_of(plan, "send");
  ASSERT_EQ(sends.size(), 1U);
  EXPECT_EQ(sends[0]->tasks.size(), 2U);  // its own columns, too
}

TEST(AllToAll, ByTheLibraryWantsEqualShares) {
  const Config config{.schedule = "sequential", .compute = Provider::library, .collective = Provider::library};
  EXPECT_EQ(reason(config), "");
  EXPECT_NE(reason(config, problem_of(false, 63)).find("63 rows on 4 ranks"), std::string::npos);
  EXPECT_NE(reason(config, problem_of(false, 64, 98)).find("98 columns on 4 ranks"), std::string::npos);
  EXPECT_TRUE(check(make_plan(problem_of(false), {.num_ranks = 4}, config)).ok());
}

/// An all-to-all whose parts come from wrong rows is refused.
TEST(AllToAll, PartsThatAreMixedUpAreRefused) {
  const Config config{.schedule = "sequential", .compute = Provider::library, .collective = Provider::library};
  Plan plan = make_plan(problem_of(false), {.num_ranks = 4}, config);
  std::vector<Task>& tasks = plan.lanes[1].tasks;
  ASSERT_EQ(tasks[0].kind, TaskKind::gemm_call);
  std::swap(tasks[0].writes, tasks[1].writes);
  const CheckResult result = check(plan);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.violations[0].rule, Rule::coverage);
  EXPECT_NE(result.violations[0].text.find("of an output holds"), std::string::npos) << result.violations[0].text;
}

TEST(AllToAll, KnobsThatSayNothingAreRefused) {
  EXPECT_NE(reason({.transport = Transport::ll}).find("transport = ll: for gemm_all_to_all want one of"),
            std::string::npos);
  EXPECT_NE(reason({.chunk_rows = 8}).find("chunk_rows"), std::string::npos);
  EXPECT_NE(reason({.copy_lanes = 2}).find("copy_lanes"), std::string::npos);
  EXPECT_NE(reason({.pacing = Pacing::lockstep}).find("pacing"), std::string::npos);
  EXPECT_NE(reason({.algorithm = Algorithm::ring}).find("algorithm"), std::string::npos);
  EXPECT_NE(reason({.reduce_mode = ReduceMode::pull}).find("reduce_mode"), std::string::npos);
  EXPECT_NE(reason({.group_m = 2, .group_owners = 2}).find("group_owners"), std::string::npos);
  EXPECT_NE(reason({.tile_order = TileOrder::in_step}).find("in_step"), std::string::npos);
  EXPECT_NE(reason({.tile_order = TileOrder::naive, .rounds = 2}).find("rounds"), std::string::npos);
  EXPECT_NE(reason({.transport = Transport::tma, .compute = Provider::library}).find("library"), std::string::npos);
  EXPECT_NE(reason({.schedule = "two_stream"}).find("gemm_all_reduce, all_reduce"), std::string::npos);
  EXPECT_NE(reason({.schedule = "track_trigger"}).find("gemm_reduce_scatter, gemm_all_reduce"), std::string::npos);
  EXPECT_NE(reason({.schedule = "sequential", .chunk_rows = 8}).find("chunk_rows"), std::string::npos);
}

TEST(AllToAll, ChoicesForGpusAreAcceptedAndDiffer) {
  for (const int64_t m : {int64_t{16}, int64_t{256}, int64_t{1024}, int64_t{8192}}) {
    for (const int ranks : {1, 2, 4, 8}) {
      Team team{.num_ranks = ranks};
      team.devices.assign(ranks, {.copy_engines = 3, .sms = 132});
      const Problem problem{.op = "gemm_all_to_all", .m = m, .n = 14336, .k = 4096};
      const std::vector<Config> choices = find_schedule("fused").candidates(problem, team);
      ASSERT_GE(choices.size(), 4U);
      for (const Config& config : choices) {
        EXPECT_EQ(find_schedule("fused").refuses(problem, team, config).value_or(""), "") << m << " " << ranks;
        EXPECT_EQ(std::ranges::count(choices, config), 1) << m << " " << ranks << " " << to_string(config);
      }
    }
  }
}

}  // namespace
}  // namespace tilewire
