// A limit of the tasks of plans, while it lives, in its thread: whoever tries many plans need not build the largest.
// Used by the simulator's command line, kept by PlanBuilder.
#pragma once

#include <cstdint>
#include <string>

namespace tilewire {

/// A plan of more tasks is refused while it is made, with Error(unsupported). Of several the youngest counts.
class TaskLimit {
 public:
  explicit TaskLimit(int64_t most);
  ~TaskLimit();
  TaskLimit(const TaskLimit&) = delete;
  TaskLimit& operator=(const TaskLimit&) = delete;

  /// Whether it refused a plan.
  [[nodiscard]] bool met() const { return met_; }
  /// Called by PlanBuilder for each task. Throws Error(unsupported) where the thread's youngest limit refuses so many.
  static void check(const std::string& schedule, int64_t tasks);

 private:
  TaskLimit* before_;
  int64_t most_;
  bool met_ = false;
};

}  // namespace tilewire
