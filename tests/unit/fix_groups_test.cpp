// Groups with fixed numbers of rows: the tasks that they become, and hand-computed costs of these in the simulator.
// Built as part of the target `unit_check`.
#include "lower/fix_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/gemm_tasks.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"
#include "unit/check_plans.hpp"
#include "unit/sim_machines.hpp"

namespace tilewire {
namespace {

/// Four experts, 16 tokens of two experts each: the example of the paper on fused computation-collective operations.
const Problem kFourExperts{.op = "moe",
                           .m = 16,
                           .n = 12,
                           .k = 24,
                           .dtype = DType::bf16,
                           .experts = Experts{.count = 4, .top_k = 2, .ffn = 8, .activation = Activation::relu}};

Plan plan_of(const Problem& problem, int ranks, const char* schedule = "fused") {
  return make_plan(problem, {.num_ranks = ranks}, {.schedule = schedule, .tile_m = 128, .tile_n = 128});
}

const Buffer& buffer_named(const Plan& plan, const std::string& name) {
  return *std::ranges::find(plan.buffers, name, &Buffer::name);
}

/// The lanes of this name alone, without waits and posts.
Plan lanes_of(Plan plan, const std::string& name) {
  std::erase_if(plan.lanes, [&](const Lane& lane) { return lane.name != name; });
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) task.waits.clear(), task.posts.clear();
  }
  return plan;
}

/// Two experts on one rank, 64 columns to 128 and these to 256.
Problem two_experts() {
  Problem problem = kFourExperts;
  problem.m = 400;
  problem.k = 64;
  problem.n = 256;
  problem.experts = Experts{.count = 2, .top_k = 1, .ffn = 128, .activation = Activation::relu};
  return problem;
}

/// Its products, where one expert has 100 rows and the other 300.
Plan products_of_two_experts() {
  const Plan fixed = fix_groups(plan_of(two_experts(), 1), [](const Task&) { return std::vector<int64_t>{100, 300}; });
  return lanes_of(fixed, "tiles");
}

TEST(FixGroups, SixteenTokensOfTwoExpertsAreEightRowsAnExpert) {
  for (const char* schedule : {"fused", "sequential"}) {
    for (const int ranks : {1, 2, 4}) {
      const Plan plan = plan_of(kFourExperts, ranks, schedule);
      check_plans::expect_accepted(plan);
      int routes = 0;
      for (const Lane& lane : plan.lanes) {
        for (const Task& task : lane.tasks) {
          if (!task.route) continue;
          ++routes;
          EXPECT_EQ(expected_rows(task), std::vector<int64_t>(static_cast<size_t>(4 / ranks), 8));
        }
      }
      EXPECT_EQ(routes, ranks);
      const Plan fixed = fix_groups(plan);
      for (const char* name : {"expert_x", "expert_h", "expert_y"}) {
        for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(shape_on(buffer_named(fixed, name), rank).rows, 32 / ranks);
      }
    }
  }
}

TEST(FixGroups, TheLoadOfExpertsGivesTheirRows) {
  Problem problem = kFourExperts;
  problem.experts->load = {6, 1, 1, 0};
  const Plan plan = plan_of(problem, 1);
  int routes = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (!task.route) continue;
      ++routes;
      // Two experts of each of 16 tokens; one takes a token once.
      EXPECT_EQ(expected_rows(task), (std::vector<int64_t>{16, 4, 4, 0}));
    }
  }
  EXPECT_EQ(routes, 1);
  EXPECT_EQ(shape_on(buffer_named(fix_groups(plan), "expert_h"), 0).rows, 24);
}

TEST(FixGroups, EachExpertMultipliesItsEightRows) {
  const Plan fixed = fix_groups(plan_of(kFourExperts, 4));
  for (const Lane& lane : fixed.lanes) {
    if (lane.name != "tiles") continue;
    ASSERT_EQ(lane.tasks.size(), 2) << "one expert on rank " << lane.rank;
    EXPECT_EQ(result_shape(lane.tasks[0]), (Shape{8, 8}));
    EXPECT_EQ(depth_of(lane.tasks[0]), 24);
    EXPECT_EQ(result_shape(lane.tasks[1]), (Shape{8, 12}));
    EXPECT_EQ(depth_of(lane.tasks[1]), 8);
  }
}

// A row of an expert is read once, though a token lists two experts on every rank.
TEST(FixGroups, SumsReadEachRowOnce) {
  Problem problem = kFourExperts;
  problem.m = 1024;
  for (const int ranks : {1, 2, 4}) {
    const Plan fixed = fix_groups(plan_of(problem, ranks));
    std::vector<int64_t> rows(static_cast<size_t>(ranks));
    for (const Lane& lane : fixed.lanes) {
      if (lane.name != "combine") continue;
      for (const Task& task : lane.tasks) {
        if (computes_with(task, Body::pool)) rows[lane.rank] += facts_of(task.body).rows_read(task);
      }
    }
    EXPECT_EQ(rows, std::vector<int64_t>(static_cast<size_t>(ranks), 2 * 1024 / ranks));
    // These rows, and for the tokens of the rank a sum of each rank, of 12 bf16.
    const Simulation sums = simulate(lanes_of(fixed, "combine"), sim_machines::round_numbers(ranks));
    EXPECT_EQ(sums.memory[0].read_bytes, (2 * 1024 / ranks + 1024) * 12 * 2);
  }
  // Fewer rows than tasks: some tasks read none, but never are all of them free.
  problem.m = 16;
  const Plan few = fix_groups(plan_of(problem, 4), [](const Task&) { return std::vector<int64_t>{1}; });
  int64_t read = 0;
  for (const Lane& lane : few.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.name == "combine" && lane.rank == 0 && computes_with(task, Body::pool))
        read += facts_of(task.body).rows_read(task);
    }
  }
  EXPECT_GE(read, 1);
  EXPECT_LE(read, 4) << "one place of each of the four tokens of a task";
}

// One tile of 100 rows and three of 300: four units make w13 at once, and the eight tiles of w2 in two waves. Each
// costs a full tile of 128 x 128.
TEST(FixGroups, ProductsTakeWholeTiles) {
  Machine machine = sim_machines::round_numbers(1);
  machine.compute.units = 4;
  machine.compute.flops_per_clock_per_unit = 256;
  machine.compute.tile_ns = 1000;
  const double w13_ns = 2.0 * 128 * 128 * 64 / 256 + 1000;
  const double w2_ns = 2.0 * 128 * 128 * 128 / 256 + 1000;
  const Plan products = products_of_two_experts();
  ASSERT_EQ(num_tasks(products), 4 + 8);
  EXPECT_NEAR(simulate(products, machine).total_ns, w13_ns + 2 * w2_ns, 2);
  // As many tiles if each has half of the rows, and more if one has a single row.
  const auto fixed = [&](int64_t first) {
    const Plan plan = fix_groups(plan_of(two_experts(), 1), [&](const Task&) {
      return std::vector<int64_t>{first, 400 - first};
    });
    return num_tasks(lanes_of(plan, "tiles"));
  };
  EXPECT_EQ(fixed(200), 4 + 8);
  EXPECT_EQ(fixed(1), 5 + 10);
}

TEST(FixGroups, WeightsAreReadOnce) {
  Machine machine = sim_machines::round_numbers(1);
  machine.compute.units = 4;
  const int64_t weights = 2 * (128 * 64 + 256 * 128) * 2;
  const int64_t rows = 400 * (64 + 128) * 2;
  const Plan products = products_of_two_experts();
  EXPECT_EQ(simulate(products, machine).memory[0].read_bytes, weights + rows);
  // Without a cache the rows of h are read for both columns of tiles, unless tiles that share them run together. The
  // weights are not read again: the tiles of a column follow one another.
  machine.memory.cache_MiB = 0;
  const int64_t without = simulate(products, machine).memory[0].read_bytes;
  EXPECT_GT(without, weights + rows);
  EXPECT_LE(without, weights + rows + 400 * 128 * 2);
  // A slow memory takes as long as its bytes.
  machine = sim_machines::round_numbers(1);
  machine.compute.units = 4;
  machine.compute.flops_per_clock_per_unit = 1e6;
  machine.memory.bandwidth_GBps = 1;
  const double written = 400.0 * (128 + 256) * 2;
  EXPECT_NEAR(simulate(products, machine).total_ns, static_cast<double>(weights + rows) + written, 2);
}

// 400 rows of 64 columns come from tokens into groups: each is read and written once.
TEST(FixGroups, GroupingMovesEachRowOnce) {
  const Plan fixed = fix_groups(plan_of(two_experts(), 1), [](const Task&) { return std::vector<int64_t>{100, 300}; });
  const Plan grouping = lanes_of(fixed, "group");
  EXPECT_EQ(num_tasks(grouping), 2 + 5) << "of 64 rows";
  Machine machine = sim_machines::round_numbers(1);
  machine.memory.bandwidth_GBps = 1;
  const Simulation moved = simulate(grouping, machine);
  EXPECT_EQ(moved.memory[0].read_bytes, 400 * 64 * 2);
  EXPECT_EQ(moved.memory[0].written_bytes, 400 * 64 * 2);
  EXPECT_NEAR(moved.total_ns, 2 * 400 * 64 * 2, 2);
}

}  // namespace
}  // namespace tilewire
