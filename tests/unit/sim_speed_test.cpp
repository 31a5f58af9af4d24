// The duration of simulations: operators on 8 ranks, on 128 ranks, and growth with the number of tasks.
// Built as part of the target `unit_sim`. Sanitized builds simulate less, and print only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "cpu_time.hpp"
#include "operator_names.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {
namespace {

constexpr int kManyRanks = kTimesCount ? 128 : 16;
/// 5 s are promised on an idle machine; the estimate of idleness is accurate to about a third.
constexpr double kLongSeconds = 8;

double seconds_of(const Plan& plan, const Machine& machine, const char* what) {
  const double seconds = idle_seconds([&] { EXPECT_GT(simulate(plan, machine).total_ns, 0); });
  std::cout << fmt::format("{}: {} tasks, {:.0f} ms\n", what, num_tasks(plan), 1e3 * seconds);
  return seconds;
}

TEST(SimSpeed, OperatorsOfEightRanks) {
  const Machine machine = load_machine("h800_nvlink8");
  for (const char* op : testing::operator_names(testing::has_gemm)) {
    const Problem problem{.op = op, .m = kTimesCount ? 8192 : 1024, .n = 8192, .k = 8192, .dtype = DType::bf16};
    const Plan plan = make_plan(problem, team_of(machine, 8), {});
    const double seconds = seconds_of(plan, machine, op);
    if (kTimesCount) {
      EXPECT_LT(seconds, 0.2) << op;
    }
  }
}

TEST(SimSpeed, AThousandTasksOnEachOf128Ranks) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 64 * kManyRanks, .n = 4096, .k = 8192};
  const Machine machine = load_machine("dlrm_torus128");
  const Plan plan = make_plan(problem, team_of(machine, kManyRanks), {});
  ASSERT_GT(num_tasks(plan), kManyRanks * (kTimesCount ? 1000 : 100));
  const double seconds = seconds_of(plan, machine, "128 ranks of a torus");
  if (kTimesCount) {
    EXPECT_LT(seconds, kLongSeconds);
  }
}

TEST(SimSpeed, A128RankExchange) {
  const Machine machine = bare_network("ring:128");
  const Plan plan = collective_plan(Collective::all_to_all, CollectiveAlgorithm::direct, 1 << 20, machine);
  ASSERT_GT(num_tasks(plan), 16000);
  const double seconds = seconds_of(plan, machine, "128 ranks around a ring, messages of up to 64 hops");
  if (kTimesCount) {
    EXPECT_LT(seconds, 2);
  }
}

TEST(SimSpeed, GrowsWithTheTasks) {
  const Machine machine = load_machine("h200x4");
  std::vector<double> seconds;
  std::vector<double> tasks;
  for (const int64_t rows : {2048, 16384}) {
    const Problem problem{.op = "gemm_reduce_scatter", .m = kTimesCount ? rows : rows / 16, .n = 8192, .k = 1024};
    const Plan plan = make_plan(problem, team_of(machine, 4), {.tile_m = 64, .tile_n = 64});
    double best = 1e9;
    for (int i = 0; i < 3; ++i) best = std::min(best, seconds_of(plan, machine, "growth"));
    seconds.push_back(best);
    tasks.push_back(static_cast<double>(num_tasks(plan)));
  }
  if (kTimesCount) {
    const double n_log_n = tasks[1] * std::log(tasks[1]) / (tasks[0] * std::log(tasks[0]));
    EXPECT_LT(seconds[1], 2 * n_log_n * seconds[0]) << "n log n allows " << n_log_n;
  }
}

}  // namespace
}  // namespace tilewire
