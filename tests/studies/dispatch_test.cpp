// Plans of an all-to-all and a GEMM behind it: the checker's proof, and their times beside those of gathers.
// Built as the target `dispatch_test`.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "studies/dispatch_plans.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"
#include "unit/sim_machines.hpp"

namespace tilewire::cli {
namespace {

const std::vector<DispatchWay> kOverlapped{DispatchWay::shards, DispatchWay::chunks, DispatchWay::tiles};

double ns(const TokenDispatch& dispatch, DispatchWay way, const Machine& machine) {
  return simulate(dispatch_plan(dispatch, way), machine).total_ns;
}

TEST(TokenDispatch, PlansAreProven) {
  const std::vector<std::vector<int64_t>> routings{{64, 64}, {3000, 64, 17, 0}, {513, 513, 513}, {1, 2048}};
  for (const std::vector<int64_t>& rows : routings) {
    const TokenDispatch dispatch{.rows = rows, .n = 300, .k = 16};
    for (const DispatchWay way : kOverlapped) {
      const CheckResult result = check(dispatch_plan(dispatch, way), dispatch_specification(dispatch));
      for (const Violation& violation : result.violations) ADD_FAILURE() << violation.text;
      // Each rank sends all rows but its own.
      int64_t sent = 0;
      for (size_t rank = 0; rank < rows.size(); ++rank) {
        const auto own = static_cast<int64_t>(rank);
        const auto ranks = static_cast<int64_t>(rows.size());
        sent += rows[rank] - (rows[rank] * (own + 1) / ranks - rows[rank] * own / ranks);
      }
      EXPECT_EQ(result.total_bytes, sent * 16 * 2);
    }
  }
}

TEST(TokenDispatch, OtherRowsAreRefused) {
  const TokenDispatch dispatch{.rows = {600, 64}, .n = 300, .k = 16};
  for (const DispatchWay way : kOverlapped) {
    Plan early = dispatch_plan(dispatch, way);
    for (Lane& lane : early.lanes) {
      if (lane.engine == Engine::copy || lane.engine == Engine::serial) continue;
      for (Task& task : lane.tasks) task.waits.clear();
    }
    EXPECT_FALSE(check(early, dispatch_specification(dispatch)).ok()) << "rows that have not arrived";
    const TokenDispatch other{.rows = {64, 600}, .n = 300, .k = 16};
    EXPECT_FALSE(check(dispatch_plan(dispatch, way), dispatch_specification(other)).ok());
  }
}

// One unit makes 1 FLOP a ns, links have 1 byte a ns and 10 ns.
TEST(TokenDispatch, SerialByHand) {
  const TokenDispatch dispatch{.rows = {512, 512}, .n = 256, .k = 64};
  const Machine machine = sim_machines::round_numbers(2);
  const double exchange = 256.0 * 64 * 2 + 10;
  const double product = 2.0 * 512 * 256 * 64;
  EXPECT_NEAR(ns(dispatch, DispatchWay::serial, machine), exchange + product, 2);
  // An expert with three times the rows of the other one: padded parts of 384 rows, then its product.
  const TokenDispatch skewed{.rows = {768, 256}, .n = 256, .k = 64};
  EXPECT_NEAR(ns(skewed, DispatchWay::serial, machine), 1.5 * (exchange - 10) + 10 + 1.5 * product, 2);
}

TEST(TokenDispatch, TilesHideWhatComesEarlyEnough) {
  const TokenDispatch dispatch{.rows = {4096, 4096}, .n = 256, .k = 64};
  Machine machine = sim_machines::round_numbers(2);
  machine.compute.flops_per_clock_per_unit = 64;
  // 2,048 own rows take 1.05 ms, and 2,048 rows from the peer 0.26 ms.
  const double product = 2.0 * 4096 * 256 * 64 / 64;
  const double exchange = 2048.0 * 64 * 2;
  EXPECT_NEAR(ns(dispatch, DispatchWay::tiles, machine), product, 0.01 * product);
  EXPECT_NEAR(ns(dispatch, DispatchWay::serial, machine), product + exchange, 0.01 * product);
}

// The links carry as much as in a gather of as many rows, and the product is as large.
TEST(TokenDispatch, EvenRoutingTakesAsLongAsAGather) {
  const Machine machine = load_machine("mi300x_mesh8");
  const TokenDispatch dispatch{.rows = std::vector<int64_t>(8, 16384), .n = 4096, .k = 4096};
  const Problem gather{.op = "all_gather_gemm", .m = 16384, .n = 8 * 4096, .k = 4096, .dtype = DType::bf16};
  const Team team = team_of(machine, 8);
  const auto gather_ns = [&](const Config& config) {
    return simulate(make_plan(gather, team, config), machine).total_ns;
  };
  Config config{.schedule = "sequential", .tile_m = 128, .tile_n = 256};
  config.compute = config.collective = Provider::library;
  const double serial = gather_ns(config);
  EXPECT_NEAR(ns(dispatch, DispatchWay::serial, machine), serial, 0.01 * serial);
  config = {.schedule = "fused", .tile_m = 128, .tile_n = 256};
  config.compute = Provider::library;
  config.transport = Transport::copy_engine;
  config.algorithm = Algorithm::ring;
  const double ring = gather_ns(config);
  EXPECT_NEAR(ns(dispatch, DispatchWay::shards, machine), ring, 0.03 * ring);
  config.algorithm = Algorithm::direct;
  config.copy_lanes = 7;
  config.chunk_rows = 16384 / 64;
  const double chunks = gather_ns(config);
  EXPECT_NEAR(ns(dispatch, DispatchWay::chunks, machine), chunks, 0.05 * chunks);
}

TEST(TokenDispatch, TheRankWithMostRowsDecides) {
  const Machine machine = load_machine("mi300x_mesh8");
  const TokenDispatch even{.rows = std::vector<int64_t>(8, 8192), .n = 8192, .k = 4096};
  TokenDispatch skewed = even;
  skewed.rows = {24576, 5856, 5856, 5856, 5856, 5856, 5856, 5824};
  ASSERT_EQ(std::accumulate(skewed.rows.begin(), skewed.rows.end(), int64_t{0}), 8 * 8192);
  const TokenDispatch alone{.rows = std::vector<int64_t>(8, 24576), .n = 8192, .k = 4096};
  for (const DispatchWay way : {DispatchWay::serial, DispatchWay::shards, DispatchWay::chunks, DispatchWay::tiles}) {
    const double time = ns(skewed, way, machine);
    EXPECT_GT(time, 1.5 * ns(even, way, machine));
    EXPECT_LT(time, 1.02 * ns(alone, way, machine)) << "as if all had as many rows, or less";
  }
}

}  // namespace
}  // namespace tilewire::cli
