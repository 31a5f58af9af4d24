// A limit of the tasks of plans, while it lives, in its thread: whoever tries many plans need not build the largest.
// Used by the simulator's command line, kept by PlanBuilder.
#pragma once

#include <cstdint>

namespace tilewire {

/// A plan of more tasks is refused while it is made, with Error(unsupported).
class TaskLimit {
 public:
  explicit TaskLimit(int64_t most);
  ~TaskLimit();
  TaskLimit(const TaskLimit&) = delete;
  TaskLimit& operator=(const TaskLimit&) = delete;

  /// Whether a plan was refused since.
  [[nodiscard]] static bool met();

 private:
  int64_t before_;
};

}  // namespace tilewire
