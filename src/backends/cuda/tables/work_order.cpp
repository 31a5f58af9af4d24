// Plays a plan on the host, with one worker per lane.
// Called by programs.
#include "backends/cuda/tables/work_order.hpp"

#include <algorithm>
#include <limits>

namespace tilewire::cuda {

std::vector<std::vector<int64_t>> order_of_tasks(const Plan& plan) {
  std::vector<int64_t> values(static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks, 0);
  const auto value = [&](Signal signal) -> int64_t& { return values[signal_id(plan, signal)]; };
  std::vector<std::vector<int64_t>> places(plan.lanes.size());
  int64_t next = 0;
  const auto execute = [&](size_t lane) {
    for (const Post& post : plan.lanes[lane].tasks[places[lane].size()].posts) value(post.signal) += post.add;
    places[lane].push_back(next++);
  };
  for (bool moved = true; moved;) {
    moved = false;
    std::vector<size_t> come;
    // One task of each lane after the other, so that lanes advance side by side.
    for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
      const auto& tasks = plan.lanes[lane].tasks;
      if (places[lane].size() == tasks.size()) continue;
      const Task& task = tasks[places[lane].size()];
      const auto met = [&](const Wait& wait) { return value(wait.signal) >= wait.at_least; };
      if (!std::ranges::all_of(task.waits, met)) continue;
      // The parts of all ranks in a collective come at once. A rank has its parts in one lane.
      const bool meets = task.kind == TaskKind::collective_call;
      if (meets) come.push_back(lane);
      if (!meets) execute(lane), moved = true;
    }
    if (std::ssize(come) == plan.team.num_ranks) {
      for (const size_t lane : come) execute(lane);
      moved = true;
    }
  }
  // The checker refuses a plan that deadlocks; here its remaining tasks only come last.
  for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    places[lane].resize(plan.lanes[lane].tasks.size(), std::numeric_limits<int64_t>::max());
  }
  return places;
}

}  // namespace tilewire::cuda
