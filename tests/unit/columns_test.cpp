// Plans of operators whose ranks have, or keep, columns: traffic, the columns that tiles wait for, refusals.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>

#include "every.hpp"
#include "schedules/variants.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

constexpr const char* kColumnGather = "all_gather_cols_gemm";
constexpr const char* kColumnScatter = "gemm_reduce_scatter_cols";

Plan proven(const Problem& problem, int ranks, const Config& config) {
  Plan plan = make_plan(problem, {.num_ranks = ranks}, config);
  require_proven(plan);
  return plan;
}

int64_t bytes_between_ranks(const Plan& plan) {
  int64_t bytes = 0;
  for (const LinkTraffic& link : traffic_of(plan)) bytes += link.bytes;
  return bytes;
}

std::vector<const Task*> products_of(const Plan& plan, int rank) {
  std::vector<const Task*> found;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank == rank && task.kind == TaskKind::compute) found.push_back(&task);
    }
  }
  return found;
}

std::string reason(const char* schedule, const Problem& problem, Config config) {
  config.schedule = schedule;
  return find_schedule(schedule).refuses(problem, {.num_ranks = 4}, config).value_or("");
}

TEST(Columns, EveryPlanMovesWhatItMust) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const char* op : {kColumnGather, kColumnScatter}) {
      Problem problem{.op = op, .m = 21, .n = 20, .k = 23, .reduction = Reduction::any};
      const std::vector<Config> variants =
          all_variants(problem, {.num_ranks = ranks}, {.tile_m = 8, .tile_n = 8, .chunk_rows = 5});
      EXPECT_GT(variants.size(), 3U) << op;
      for (const Config& config : testing::every(variants)) {
        const Plan plan = proven(problem, ranks, config);
        // Rings and what memory adds up pass parts on; all others send each element once.
        if (config.algorithm != Algorithm::direct) continue;
        EXPECT_EQ(bytes_between_ranks(plan), specification_of(problem, ranks).least_bytes) << op << " on " << ranks;
      }
    }
  }
}

TEST(Columns, GatheredOutputsAreProvenWhereverTheyLie) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool arena : {false, true}) {
      Problem problem{.op = kColumnGather, .m = 21, .n = 20, .k = 23, .gathered_output = true};
      if (arena) problem.arena = {"gathered"};
      for (const Config& config :
           all_variants(problem, {.num_ranks = ranks}, {.tile_m = 8, .tile_n = 8, .chunk_rows = 5}))
        static_cast<void>(proven(problem, ranks, config));
    }
  }
}

TEST(Columns, TilesOfAGatherWaitForAnOwnerFromItsFirstColumn) {
  const Problem problem{.op = kColumnGather, .m = 32, .n = 32, .k = 40};
  const Plan plan = proven(problem, 4, {.schedule = "fused", .tile_m = 16, .tile_n = 8, .chunk_rows = 16});
  const std::vector<const Task*> tiles = products_of(plan, 1);
  ASSERT_EQ(tiles.size(), 2U);
  for (const Task* tile : tiles) {
    std::vector<int64_t> columns;
    for (const Wait& wait : tile->waits) columns.push_back(wait.from_col);
    EXPECT_EQ(columns, (std::vector<int64_t>{0, 10, 20, 30}));
    EXPECT_EQ(depth_of(*tile), 40);
  }
}

TEST(Columns, ATileOfAScatterHasColumnsOfOneOwner) {
  const Problem problem{.op = kColumnScatter, .m = 32, .n = 40, .k = 16};
  const Plan plan = proven(problem, 4, {.schedule = "fused", .tile_m = 16, .tile_n = 16});
  for (const Task* tile : products_of(plan, 2)) {
    ASSERT_EQ(tile->writes.size(), 1U);
    EXPECT_LE(tile->writes[0].to.cols, 10);
  }
}

TEST(Columns, CopiesSendAnOwnersColumnsAtOnce) {
  const Problem problem{.op = kColumnScatter, .m = 64, .n = 40, .k = 16};
  const Config config{
      .schedule = "fused", .tile_m = 16, .tile_n = 16, .chunk_rows = 32, .transport = Transport::copy_engine};
  const Plan plan = proven(problem, 4, config);
  int copies = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.name != "send") continue;
      ++copies;
      EXPECT_EQ(task.reads[0].rows, 32);
      EXPECT_EQ(task.reads[0].cols, 10);
    }
  }
  EXPECT_EQ(copies, 4 * 3 * 2);
}

TEST(Columns, WithoutAWaitTheyAreRefused) {
  for (const char* op : {kColumnGather, kColumnScatter}) {
    const Problem problem{.op = op, .m = 16, .n = 16, .k = 16};
    const Plan plan = proven(problem, 2, {.schedule = "fused", .tile_m = 8, .tile_n = 8});
    int refused = 0;
    for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
      for (size_t task = 0; task < plan.lanes[lane].tasks.size(); ++task) {
        if (plan.lanes[lane].tasks[task].waits.empty()) continue;
        Plan damaged = plan;
        damaged.lanes[lane].tasks[task].waits.clear();
        EXPECT_THROW(require_proven(damaged), Error) << op << ", " << task_name(plan, static_cast<int>(lane), task);
        ++refused;
      }
    }
    EXPECT_GT(refused, 0);
  }
}

TEST(Columns, KnobsThatSayNothingAreRefused) {
  const Problem gather{.op = kColumnGather, .m = 64, .n = 64, .k = 64};
  const Problem scatter{.op = kColumnScatter, .m = 64, .n = 64, .k = 64, .reduction = Reduction::any};
  EXPECT_EQ(reason("fused", gather, {.rounds = 2}),
            "knob rounds = 2 has no meaning for all_gather_cols_gemm (tilewire info --knobs)");
  EXPECT_EQ(reason("fused", gather, {.chunk_cols = 8}),
            "knob chunk_cols = 8 has no meaning for all_gather_cols_gemm (tilewire info --knobs)");
  EXPECT_EQ(reason("fused", gather, {.copy_workers = 2, .transport = Transport::copy_engine}),
            "copy_workers: needs transport = store; with copy_engine copy lanes copy");
  EXPECT_EQ(reason("track_trigger", scatter, {}), "it knows only gemm_reduce_scatter, gemm_all_reduce");
  EXPECT_EQ(reason("sequential", scatter, {.compute = Provider::library, .collective = Provider::library}),
            "collective = library: the library gathers and scatters rows");
}

}  // namespace
}  // namespace tilewire
