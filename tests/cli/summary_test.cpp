// The longest chain of hand-made plans.
#include "cli/summary.hpp"

#include <gtest/gtest.h>

#include "tilewire/error.hpp"

namespace tilewire::cli {
namespace {

Task sync_task(std::vector<Wait> waits, std::vector<Post> posts) {
  return {.kind = TaskKind::sync, .waits = std::move(waits), .posts = std::move(posts)};
}

Plan plan_of(std::vector<Lane> lanes) {
  Plan plan;
  plan.op = "all_reduce";
  plan.team.num_ranks = 1;
  plan.signals = {{"s", 0, 2}};
  plan.lanes = std::move(lanes);
  return plan;
}

double count(const Plan& plan) {
  return critical_path(plan, [](const Task&) { return 1.0; });
}

TEST(CriticalPath, PoolsRunSideBySideAndSerialLanesDoNot) {
  const std::vector<Task> three(3, sync_task({}, {}));
  EXPECT_EQ(count(plan_of({{.engine = Engine::tiles, .tasks = three}})), 1);
  EXPECT_EQ(count(plan_of({{.engine = Engine::copy, .tasks = three}})), 3);
}

TEST(CriticalPath, FollowsSignals) {
  // Two posts satisfy the wait; the next task in the pool need not wait for it.
  const Lane first{.engine = Engine::copy,
                   .tasks = {sync_task({}, {{{0, 0}, 1}}), sync_task({}, {}), sync_task({}, {{{0, 0}, 1}})}};
  const Lane second{.engine = Engine::tiles, .tasks = {sync_task({{{0, 0}, 2}}, {{{0, 1}, 1}}), sync_task({}, {})}};
  const Lane third{.engine = Engine::copy, .tasks = {sync_task({{{0, 1}, 1}}, {})}};
  EXPECT_EQ(count(plan_of({first})), 3);
  EXPECT_EQ(count(plan_of({first, second, third})), 5);
}

TEST(CriticalPath, FollowsStages) {
  const Lane before{.engine = Engine::tiles, .tasks = {sync_task({}, {}), sync_task({}, {})}};
  const Lane after{.engine = Engine::copy, .stage = 1, .tasks = {sync_task({}, {}), sync_task({}, {})}};
  EXPECT_EQ(count(plan_of({before, after})), 3);
}

TEST(CriticalPath, RefusesADeadlock) {
  try {
    count(plan_of({{.engine = Engine::tiles, .tasks = {sync_task({{{0, 0}, 1}}, {})}}}));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::refused_plan);
  }
}

}  // namespace
}  // namespace tilewire::cli
