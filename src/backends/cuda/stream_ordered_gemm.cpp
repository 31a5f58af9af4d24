// Plans whose call of the vendor's GEMM can stand between two kernels of one stream.
// Called by lane_tables.cpp.
#include "backends/cuda/stream_ordered_gemm.hpp"

#include <algorithm>

#include "backends/cuda/stream_work.hpp"

namespace tilewire::cuda {
namespace {

/// Whether each rank that works has one call of the GEMM, and nothing else is called.
bool has_one_call_each(const Plan& plan) {
  std::vector<int> calls(plan.team.num_ranks, 0);
  for (const Lane& lane : plan.lanes) {
    calls[lane.rank] +=
        static_cast<int>(std::ranges::count_if(lane.tasks, [](const Task& t) { return calls_library(t); }));
  }
  return !calls_collective(plan) && calls_library(plan) && std::ranges::max(calls) == 1;
}

/// Whether calls wait for all that moves data before them, themselves or by way of others. What they do not wait for is
/// meant to run beside them.
bool all_is_awaited(const Plan& plan, const std::vector<int64_t>& before) {
  std::vector<bool> awaited(static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks, false);
  const auto is_awaited = [&](const Task& task) {
    return calls_library(task) ||
           std::ranges::any_of(task.posts, [&](const Post& post) { return awaited[signal_id(plan, post.signal)]; });
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (const Lane& lane : plan.lanes) {
      for (const Task& task : lane.tasks) {
        if (!is_awaited(task)) continue;
        for (const Wait& wait : task.waits) {
          moved = moved || !awaited[signal_id(plan, wait.signal)];
          awaited[signal_id(plan, wait.signal)] = true;
        }
      }
    }
  }
  for (size_t i = 0; i < plan.lanes.size(); ++i) {
    const auto& tasks = plan.lanes[i].tasks;
    const bool all = std::all_of(tasks.begin(), tasks.begin() + before[i],
                                 [&](const Task& task) { return task.kind == TaskKind::sync || is_awaited(task); });
    if (!all) return false;
  }
  return true;
}

}  // namespace

std::vector<int64_t> tasks_before_calls(const Plan& plan) {
  if (!has_one_call_each(plan)) return {};
  std::vector<bool> late(static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks, false);
  const auto waits_for_call = [&](const Task& task) {
    return std::ranges::any_of(task.waits, [&](const Wait& wait) { return late[signal_id(plan, wait.signal)]; });
  };
  std::vector<int64_t> before;
  for (const Lane& lane : plan.lanes) before.push_back(std::ssize(lane.tasks));
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < plan.lanes.size(); ++i) {
      const std::vector<Task>& tasks = plan.lanes[i].tasks;
      const auto first = std::find_if(tasks.begin(), tasks.begin() + before[i],
                                      [&](const Task& task) { return calls_library(task) || waits_for_call(task); });
      before[i] = first - tasks.begin();
      for (auto task = first; task != tasks.end(); ++task) {
        for (const Post& post : task->posts) {
          moved = moved || !late[signal_id(plan, post.signal)];
          late[signal_id(plan, post.signal)] = true;
        }
      }
    }
  }
  for (size_t i = 0; i < plan.lanes.size(); ++i) {
    const std::vector<Task>& tasks = plan.lanes[i].tasks;
    const auto call = std::ranges::find_if(tasks, [](const Task& task) { return calls_library(task); });
    if (call != tasks.end() && (call - tasks.begin() != before[i] || waits_for_call(*call))) return {};
  }
  if (!all_is_awaited(plan, before)) return {};
  return before;
}

}  // namespace tilewire::cuda
