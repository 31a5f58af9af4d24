// The bench's baselines on devices: bursts, links, and a GEMM beside independent copies.
#include "cli/measure.hpp"

#include <gtest/gtest.h>

#include "cli/summary.hpp"
#include "core/gemm_tasks.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/backend.hpp"
#include "tuner/measure.hpp"

namespace tilewire::cli {
namespace {

TEST(Bursts, AreSomeMillisecondsOfWorkAndNotTooManyCalls) {
  EXPECT_EQ(tuner::calls_in_burst(0), 20);
  EXPECT_EQ(tuner::calls_in_burst(30), 20);
  EXPECT_EQ(tuner::calls_in_burst(1000), 8);
  EXPECT_EQ(tuner::calls_in_burst(3000), 2);
  EXPECT_EQ(tuner::calls_in_burst(1e6), 1);
}

TEST(Graphs, AreForFewRowsAndForShortCalls) {
  EXPECT_TRUE(tuner::wants_graphs(64, 1e4));
  EXPECT_TRUE(tuner::wants_graphs(tuner::kMostGraphRows, 1e4));
  EXPECT_TRUE(tuner::wants_graphs(8192, 60));
  EXPECT_FALSE(tuner::wants_graphs(8192, 500));
}

Team linked(int ranks, double bandwidth) {
  Team team{.num_ranks = ranks};
  team.links.assign(ranks * ranks, {Reach::load_store, bandwidth, 2});
  return team;
}

TEST(Links, TakeAsLongAsTheSlowestOfThem) {
  const Problem problem{.op = "all_gather_gemm", .m = 8192, .n = 49152, .k = 12288};
  EXPECT_EQ(link_us(problem, {.num_ranks = 4}), std::nullopt);
  EXPECT_EQ(link_us(problem, linked(1, 389)), std::nullopt);
  Team team = linked(4, 389);
  EXPECT_NEAR(link_us(problem, team).value_or(0), 388, 1);
  team.links[1].bandwidth_GBps = 194.5;
  EXPECT_NEAR(link_us(problem, team).value_or(0), 776, 1);
  team.links[2].bandwidth_GBps = 0;
  EXPECT_EQ(link_us(problem, team), std::nullopt);
}

TEST(Free, IsTheGemmAndItsBytesAndNothingBetweenThem) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 64, .n = 64, .k = 64};
  for (const Provider compute : {Provider::tiles, Provider::library}) {
    const Plan sequential = make_plan(problem, {.num_ranks = 4}, {.schedule = "sequential", .compute = compute});
    const Plan gemm = gemm_only(sequential);
    const int64_t bytes = 3000;
    const Plan plan = beside_exchange(gemm, bytes);
    validate(plan);
    EXPECT_GT(critical_path(plan, [](const Task&) { return 1.0; }), 3);
    std::vector<int64_t> sent(4, 0);
    for (const Lane& lane : plan.lanes) {
      for (const Task& task : lane.tasks) {
        EXPECT_TRUE(!computes(task) || (task.waits.empty() && task.posts.empty()));
        if (task.kind == TaskKind::copy) sent[lane.rank] += static_cast<int64_t>(moved_bytes_of(plan, task));
      }
    }
    for (const int64_t each : sent) {
      EXPECT_GE(each, bytes);
      EXPECT_LT(each, bytes + 3 * 256);
    }
  }
  const Plan alone = gemm_only(make_plan(problem, {.num_ranks = 1}, {.schedule = "sequential"}));
  EXPECT_EQ(beside_exchange(alone, 0), alone);
}

TEST(Free, AGathersGemmHasTheShapesThatItHasOnEachRank) {
  const Problem problem{.op = "all_gather_gemm", .m = 64, .n = 96, .k = 32};
  const Plan plan = gemm_only(make_plan(gemm_of_gather(problem, 3), {.num_ranks = 3},
                                        {.schedule = "sequential", .compute = Provider::library}));
  ASSERT_EQ(plan.lanes.size(), 3U);
  for (const Lane& lane : plan.lanes) {
    ASSERT_EQ(lane.tasks.size(), 1U);
    const Task& task = lane.tasks[0];
    EXPECT_EQ(task.reads[0].rows, 64);
    EXPECT_EQ(task.reads[0].cols, 32);
    EXPECT_EQ(task.reads[1].rows, 32);
    EXPECT_EQ(plan.buffers[task.reads[0].buffer].scope, Scope::input);
  }
}

TEST(Free, RunsOnRanksOfTheHost) {
  const Problem problem{.op = "all_gather_gemm", .m = 96, .n = 64, .k = 64};
  launch(3, {.threads = true}, [&](Group& group) {
    const RankTensors tensors(group, problem);
    tensors.fill(random_inputs(problem, 3, 1));
    const Plan plan = gemm_only(make_plan(problem, group.team(), {.schedule = "sequential"}));
    std::vector<Contender> contenders;
    contenders.push_back(contender(group, "free", beside_exchange(plan, 10'000)));
    measure_in_turn(group, tensors, contenders, {.warmup = 1, .measured = 3}, [](const std::string&) {});
    EXPECT_EQ(contenders[0].samples_us.size(), 3U);
    EXPECT_EQ(contenders[0].calls, 0) << "the host's clock times single calls";
    EXPECT_TRUE(contenders[0].enqueue_us.empty()) << "and nothing is enqueued";
    EXPECT_EQ(eager_enqueue_us(group, contenders[0], tensors), std::nullopt);
    EXPECT_FALSE(choose_graphs(group, tensors, contenders, 1, 64));
    EXPECT_FALSE(contenders[0].graph);
    EXPECT_GT(median_us(contenders[0]), 0);
  });
}

}  // namespace
}  // namespace tilewire::cli
