// An order in which all tasks of a plan can begin: every lane runs one task at a time, as soon as its waits have ended.
// Called by programs.
#include "backends/cuda/work_order.hpp"

#include <algorithm>
#include <limits>

namespace tilewire::cuda {

std::vector<std::vector<int64_t>> begin_order(const Plan& plan) {
  const size_t signals = num_signals(plan);
  std::vector<int64_t> values(plan.team.num_ranks * signals, 0);
  const auto value = [&](const Signal& signal) -> int64_t& { return values[signal.rank * signals + signal.index]; };
  std::vector<std::vector<int64_t>> order;
  for (const Lane& lane : plan.lanes) order.emplace_back(lane.tasks.size(), std::numeric_limits<int64_t>::max());
  std::vector<size_t> next(plan.lanes.size(), 0);
  int64_t place = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t index = 0; index < plan.lanes.size(); ++index) {
      const std::vector<Task>& tasks = plan.lanes[index].tasks;
      const auto can_begin = [&](const Task& task) {
        return std::ranges::all_of(task.waits, [&](const Wait& wait) { return value(wait.signal) >= wait.at_least; });
      };
      for (; next[index] < tasks.size() && can_begin(tasks[next[index]]); ++next[index]) {
        order[index][next[index]] = place++;
        for (const Post& post : tasks[next[index]].posts) value(post.signal) += post.add;
        moved = true;
      }
    }
  }
  return order;
}

}  // namespace tilewire::cuda
