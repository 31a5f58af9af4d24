// The cost of the machinery: an empty task, a round trip of two ranks, tracing.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "ranks/plans.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

using testing::add_buffer;
using testing::add_signals;

constexpr int kTasks = 10'000;

/// Empty tiles, each with a satisfied wait and a post.
Plan empty_tasks(int workers) {
  Plan plan = testing::new_plan("nothing", 1);
  const int a = add_buffer(plan, "a", DType::fp32, {0, 8}, Scope::local);
  const int b = add_buffer(plan, "b", DType::fp32, {0, 8}, Scope::local);
  const int c = add_buffer(plan, "c", DType::fp32, {0, 0}, Scope::local);
  const int started = add_signals(plan, "started");
  const int done = add_signals(plan, "done", 64);
  Lane& lane = testing::add_lane(plan, 0, Engine::tiles, "tiles", workers);
  lane.tasks.push_back(testing::sync_task());
  lane.tasks[0].posts = {{{0, started}, 1}};
  for (int i = 0; i < kTasks; ++i) {
    Task task;
    task.kind = TaskKind::compute;
    task.reads = {testing::whole(plan, 0, a), testing::whole(plan, 0, b)};
    task.writes = {{testing::whole(plan, 0, c), 0, WriteMode::store}};
    task.waits = {{{0, started}, 1, Purpose::data}};
    task.posts = {{{0, done + i % 64}, 1}};
    lane.tasks.push_back(task);
  }
  return plan;
}

/// The least of several calls, in microseconds.
double best_us(Program& program, const RunOptions& options) {
  double best = 1e30;
  for (int call = 0; call < 20; ++call) {
    const auto begin = std::chrono::steady_clock::now();
    program.run({}, {}, options);
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

TEST(Cost, AnEmptyTaskIsUnderFiveMicroseconds) {
  for (const int workers : {1, 2, 4}) {
    launch(1, testing::small_launch(true), [&](Group& group) {
      const auto program = group.load(empty_tasks(workers));
      const double plain = best_us(*program, {}) / kTasks;
      const double traced = best_us(*program, {true}) / kTasks;
      std::printf("%d workers: %.3f us for an empty task, %.3f traced\n", workers, plain, traced);
      EXPECT_LT(plain, 5);
    });
  }
}

TEST(Cost, RoundTripOfTwoRanks) {
  for (const bool threads : testing::launch_modes()) {
    launch(2, testing::small_launch(threads), [&](Group& group) {
      constexpr int kRounds = 1000;
      const auto program = group.load(testing::ping_pong(kRounds));
      const double round = best_us(*program, {}) / kRounds;
      if (group.team().rank == 0) {
        std::printf("%s: %.2f us for a round trip\n", threads ? "threads" : "processes", round);
      }
      testing::want(round < 1000, "a round trip takes {} us", round);
    });
  }
}

}  // namespace
}  // namespace tilewire
