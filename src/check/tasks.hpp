// All tasks of a plan in one list, with their waits and posts on numbered signals.
// Built once by check.cpp and by the simulator for a plan that passed validate().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::checking {

/// One wait of a task (amount = threshold), or all of its posts to one signal (amount = their sum).
struct Use {
  int task = 0;
  int signal = 0;
  int64_t amount = 0;
};

struct Tasks {
  /// For messages: the original plan if `plan` is one of steps (steps.hpp), and by lane and task the original index.
  /// Null if not.
  struct StepsOf {
    const Plan* plan;
    const std::vector<std::vector<int64_t>>* places;
  };
  explicit Tasks(const Plan& plan, StepsOf of = {nullptr, nullptr});

  [[nodiscard]] int size() const { return static_cast<int>(task.size()); }
  [[nodiscard]] std::string name(int t) const {
    const int64_t place = t - lane_begin[lane[t]];
    if (steps_of.plan == nullptr) return task_name(plan, lane[t], place);
    return task_name(*steps_of.plan, lane[t], (*steps_of.places)[lane[t]][place]);
  }
  /// Whether both tasks are in one serial lane, `first` before `second`.
  [[nodiscard]] bool in_series(int first, int second) const {
    return first < second && lane[first] == lane[second] && is_serial(plan.lanes[lane[first]].engine);
  }

  const Plan& plan;
  StepsOf steps_of{nullptr, nullptr};
  std::vector<const Task*> task{};
  std::vector<int> lane{};
  std::vector<int> rank{};
  std::vector<int> lane_begin{};  ///< first task of each lane, then the number of tasks
  std::vector<Signal> signals{};  ///< signals that a task uses
  std::vector<int64_t> totals{};  ///< sum of the posts to each signal in one call
  std::vector<Use> waits{};       ///< sorted by task
  std::vector<Use> posts{};
  std::vector<int> wait_begin{};  ///< first wait of each task in `waits`, then the end
  std::vector<int> post_begin{};
  std::vector<int> meeting{};  ///< index of each collective call in `meetings`; -1 for other tasks
  /// The n-th collective calls of all ranks: none ends before all have begun. In a correct plan the index is [n][rank].
  std::vector<std::vector<int>> meetings{};

 private:
  void number_meetings();
};

}  // namespace tilewire::checking
