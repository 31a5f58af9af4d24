// The backend's host side for calls and failures, without a GPU: the order of the streams' work, and the texts for
// reports of
// kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "backends/cuda/runtime/failures.hpp"
#include "backends/cuda/tables/work_order.hpp"
#include "operator_names.hpp"
#include "schedules/variants.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

/// Every task of a plan with its place.
std::vector<std::tuple<int64_t, size_t, size_t>> in_order(const Plan& plan) {
  const auto places = cuda::order_of_tasks(plan);
  std::vector<std::tuple<int64_t, size_t, size_t>> all;
  for (size_t lane = 0; lane < places.size(); ++lane) {
    for (size_t task = 0; task < places[lane].size(); ++task) all.emplace_back(places[lane][task], lane, task);
  }
  std::ranges::sort(all);
  return all;
}

TEST(CudaOrder, NoTaskWaitsForALaterOne) {
  for (const char* op : testing::operator_names()) {
    const Problem problem{.op = op, .m = 150, .n = 64, .k = 32, .dtype = DType::fp32, .reduction = Reduction::any};
    const Team team{.num_ranks = 4};
    for (const Config& config : all_variants(problem, team, {.tile_m = 16, .tile_n = 16, .chunk_rows = 10})) {
      SCOPED_TRACE(to_string(config));
      const Plan plan = make_plan(problem, team, config);
      std::vector<int64_t> values(static_cast<size_t>(num_signals(plan)) * team.num_ranks, 0);
      std::vector<size_t> next(plan.lanes.size(), 0);
      const auto tasks = in_order(plan);
      ASSERT_EQ(std::ssize(tasks), num_tasks(plan));
      for (size_t i = 0; i < tasks.size(); ++i) {
        const auto& [place, lane, index] = tasks[i];
        ASSERT_EQ(place, static_cast<int64_t>(i));
        ASSERT_EQ(index, next[lane]++) << "lanes keep their order";
        const Task& task = plan.lanes[lane].tasks[index];
        for (const Wait& wait : task.waits) {
          ASSERT_GE(values[signal_id(plan, wait.signal)], wait.at_least)
              << task_name(plan, static_cast<int>(lane), static_cast<int64_t>(index)) << " waits for a later task";
        }
        for (const Post& post : task.posts) {
          values[signal_id(plan, post.signal)] += post.add;
        }
      }
    }
  }
}

TEST(CudaFailureReports, AreToldByTheirLauncherOnce) {
  cuda::WaitFailure report;
  cuda::Failures failures(&report);
  const auto say = [](const char* who) {
    return [who](const cuda::WaitFailure& failure) {
      return Error(ErrorKind::timeout, std::string(who) + " task " + std::to_string(failure.task));
    };
  };
  const uint32_t first = failures.add(say("first"));
  const uint32_t second = failures.add(say("second"));
  ASSERT_NE(first, second);
  EXPECT_FALSE(failures.first());
  report = {.written = 1, .task = 5, .owner = second};
  failures.remove(second);
  ASSERT_TRUE(failures.first());
  EXPECT_STREQ(failures.first()->what(), "second task 5") << "what was reported outlives the launcher";
  report.owner = first;
  EXPECT_STREQ(failures.first()->what(), "second task 5") << "the first report stays";
}

TEST(CudaFailureReports, OfNobodyAreErrorsToo) {
  cuda::WaitFailure report;
  cuda::Failures failures(&report);
  failures.remove(failures.add([](const cuda::WaitFailure&) { return Error(ErrorKind::timeout, "gone"); }));
  report = {.written = 1, .owner = 1};
  ASSERT_TRUE(failures.first());
  EXPECT_EQ(failures.first()->kind(), ErrorKind::internal);
}

}  // namespace
}  // namespace tilewire
