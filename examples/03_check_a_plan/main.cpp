// A plan is data: make one without running it, look at it, break it, and see the checker refuse it.
#include <cstdio>
#include <tilewire/tilewire.hpp>

using namespace tilewire;

int main() {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 256, .n = 512, .k = 256};
  const Config config{.schedule = "fused", .tile_m = 64, .tile_n = 128};
  Plan plan = make_plan(problem, Team{.num_ranks = 4}, config);
  std::printf("%zu lanes, %lld tasks, %lld bytes of symmetric workspace on each rank\n", plan.lanes.size(),
              static_cast<long long>(num_tasks(plan)), static_cast<long long>(symmetric_bytes(plan)));
  for (const LinkTraffic& link : traffic_of(plan)) {
    std::printf("rank %d -> rank %d: %lld bytes\n", link.from, link.to, static_cast<long long>(link.bytes));
  }
  if (!check(plan).ok()) return 1;

  // Remove the first wait for data.
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (task.waits.empty() || task.waits[0].purpose != Purpose::data) continue;
      task.waits.erase(task.waits.begin());
      const CheckResult result = check(plan);
      for (const Violation& violation : result.violations) std::printf("refused: %s\n", violation.text.c_str());
      return result.ok() ? 1 : 0;
    }
  }
  return 1;
}
