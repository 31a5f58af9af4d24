// What the schedule `sequential` honours and refuses, and how its copies and sums go from rank to rank.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <string>

#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

TEST(Rules, SequentialSendsOrOwnersRead) {
  const auto reason = [](const char* op, Config config) {
    config.schedule = "sequential";
    const Problem problem{.op = op, .m = 64, .n = 64, .k = 64, .reduction = Reduction::any};
    return find_schedule("sequential").refuses(problem, {.num_ranks = 2}, config).value_or("");
  };
  const auto pulls = [](Config config = {}) {
    config.reduce_mode = ReduceMode::pull;
    return config;
  };
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) EXPECT_EQ(reason(op, pulls()), "");
  EXPECT_NE(reason("gemm_all_reduce", pulls({.pacing = Pacing::lockstep})).find("pacing"), std::string::npos);
  EXPECT_NE(reason("gemm_reduce_scatter", pulls({.chunk_rows = 8})).find("chunk_rows"), std::string::npos);
  EXPECT_NE(reason("gemm_all_reduce", {.reduce_mode = ReduceMode::accumulate}).find("accumulate"), std::string::npos);
  EXPECT_NE(reason("gemm_all_reduce", {.copy_workers = 4}).find("copy_workers"), std::string::npos);
  const Problem gather{.op = "all_gather_gemm", .m = 64, .n = 64, .k = 64};
  for (const int workers : {0, 4}) {
    const Plan plan = make_plan(gather, {.num_ranks = 2}, {.schedule = "sequential", .copy_workers = workers});
    for (const Lane& lane : plan.lanes) {
      if (lane.name != std::string("gather")) continue;
      EXPECT_EQ(lane.engine, workers > 0 ? Engine::tiles : Engine::copy);
    }
  }
}

}  // namespace
}  // namespace tilewire
