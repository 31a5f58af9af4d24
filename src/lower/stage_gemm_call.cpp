// Makes library GEMMs stream-ordered: the lanes are cut into stages before the call, the call itself, and after it.
// Listed in lower.cpp.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/kernel_limits.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"
#include "lower/stages.hpp"

namespace tilewire::lowering {
namespace {

bool is_call(const Task& task) { return task.kind == TaskKind::gemm_call; }

/// Whether each rank has at most one GEMM call, some rank has one, and there is no other library call.
bool has_one_call_each(const Plan& plan) {
  std::vector<int64_t> calls(plan.team.num_ranks, 0);
  for (const Lane& lane : plan.lanes) {
    if (std::ranges::count(lane.tasks, TaskKind::collective_call, &Task::kind) > 0) return false;
    calls[lane.rank] += std::ranges::count_if(lane.tasks, is_call);
  }
  return std::ranges::max(calls) == 1;
}

/// A set of signals of all ranks, indexed by signal_id.
using Signals = std::vector<bool>;

/// Add the signals of waits or posts. Returns whether one of them is new.
template <class Uses>
bool add(const Plan& plan, const Uses& uses, Signals& signals) {
  bool added = false;
  for (const auto& use : uses) {
    added = added || !signals[signal_id(plan, use.signal)];
    signals[signal_id(plan, use.signal)] = true;
  }
  return added;
}

template <class Uses>
bool any(const Plan& plan, const Uses& uses, const Signals& signals) {
  return std::ranges::any_of(uses, [&](const auto& use) { return signals[signal_id(plan, use.signal)]; });
}

Signals none_of(const Plan& plan) {
  return Signals(static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks, false);
}

/// Whether the calls wait, directly or through other tasks, for all tasks that move data before them. Other such tasks
/// are meant to run beside the call. `before`: number of tasks of each lane before the calls.
bool all_is_awaited(const Plan& plan, const std::vector<int64_t>& before) {
  Signals awaited = none_of(plan);
  const auto is_awaited = [&](const Task& task) { return is_call(task) || any(plan, task.posts, awaited); };
  for (bool moved = true; moved;) {
    moved = false;
    for (const Lane& lane : plan.lanes) {
      for (const Task& task : lane.tasks) {
        if (is_awaited(task) && add(plan, task.waits, awaited)) moved = true;
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

/// Number of first tasks of each lane that wait for no call, not even indirectly. Nothing if one call waits for
/// another.
std::vector<int64_t> tasks_before_calls(const Plan& plan) {
  Signals late = none_of(plan);
  std::vector<int64_t> before;
  for (const Lane& lane : plan.lanes) before.push_back(std::ssize(lane.tasks));
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < plan.lanes.size(); ++i) {
      const std::vector<Task>& tasks = plan.lanes[i].tasks;
      const auto first = std::find_if(tasks.begin(), tasks.begin() + before[i],
                                      [&](const Task& task) { return is_call(task) || any(plan, task.waits, late); });
      before[i] = first - tasks.begin();
      for (auto task = first; task != tasks.end(); ++task) {
        if (add(plan, task->posts, late)) moved = true;
      }
    }
  }
  for (size_t i = 0; i < plan.lanes.size(); ++i) {
    const std::vector<Task>& tasks = plan.lanes[i].tasks;
    const auto call = std::ranges::find_if(tasks, is_call);
    if (call != tasks.end() && (call - tasks.begin() != before[i] || any(plan, call->waits, late))) return {};
  }
  return before;
}

/// Whether the call is a rank's only stream work, and the next kernel's preamble has room for its posts.
bool may_stand_alone(const Plan& plan, int rank) {
  bool calls = false;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != rank) continue;
    if (lane.engine == Engine::copy) return false;
    // Tiles have a kernel of their own, beside the call.
    if (std::ranges::any_of(lane.tasks, is_gemm_tile)) return false;
    if (lane.engine != Engine::library) continue;
    for (const Task& task : lane.tasks) {
      if (task.kind == TaskKind::sync) continue;
      calls = true;
      const bool works = is_call(task) && task.reads[0].rows > 0 && task.reads[0].cols > 0;
      if (!works || std::ssize(task.posts) > kMostPreamblePosts) return false;
    }
  }
  return calls;
}

/// Cut a lane into one lane per stage. `before`: number of its tasks before the call.
void append_stages(std::vector<Lane>& lanes, Lane lane, int64_t before) {
  std::vector<Task> tasks = std::move(lane.tasks);
  lane.tasks.clear();
  const auto part = [&](int stage, int64_t first, int64_t end, const char* suffix) {
    if (first == end) return;
    Lane& some = lanes.emplace_back(lane);
    some.stage = stage;
    some.name += suffix;
    some.tasks.assign(std::move_iterator(tasks.begin() + first), std::move_iterator(tasks.begin() + end));
  };
  const int64_t size = std::ssize(tasks);
  const bool calls = lane.engine == Engine::library && before < size;
  const int64_t after = before + (calls ? 1 : 0);
  part(0, 0, before, before < size ? "_before" : "");
  part(kCallStage, before, after, "");
  part(kStageAfterCall, after, size, calls ? "_after" : "");
}

}  // namespace

std::string stage_gemm_call(Plan& plan, const Target&) {
  if (!has_library_call(plan)) return "no call of the library";
  if (std::ranges::any_of(plan.lanes, [](const Lane& lane) { return lane.stage > 0; }))
    return "the schedule has chosen";
  if (!has_one_call_each(plan)) return "calls of collectives, or several of a GEMM by one rank";
  const std::vector<int64_t> before = tasks_before_calls(plan);
  if (before.empty()) return "a call waits for another one";
  if (!all_is_awaited(plan, before)) return "a rank moves data beside its call";
  std::vector<char> staged;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) staged.push_back(may_stand_alone(plan, rank));
  if (std::ranges::count(staged, 1) == 0)
    return "streams have more to do than one call, tiles run beside it, or the call is empty";
  std::vector<Lane> lanes;
  for (size_t i = 0; i < plan.lanes.size(); ++i) {
    if (staged[plan.lanes[i].rank] == 0) {
      lanes.push_back(std::move(plan.lanes[i]));
    } else {
      append_stages(lanes, std::move(plan.lanes[i]), before[i]);
    }
  }
  plan.lanes = std::move(lanes);
  const size_t dropped = drop_waits_between_stages(plan);
  return fmt::format("{} of {} ranks call the library between two kernels{}", std::ranges::count(staged, 1),
                     plan.team.num_ranks, dropped > 0 ? fmt::format("; their order replaces {} waits", dropped) : "");
}

}  // namespace tilewire::lowering
