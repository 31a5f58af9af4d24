// Epilogue steps: functions applied to the finished elements of an output.
// Used by problems, which request them, and by plans, whose tasks apply them.
#pragma once

#include <algorithm>

namespace tilewire {

enum class EpilogueKind {
  bias,
  gelu,
  relu,
  scale,
  residual,      ///< add a matrix of the output's shape
  swiglu_pairs,  ///< one column of two: silu(column 2i) * column 2i + 1; the only step
};

/// One step applied to finished elements, once, after the reduction across ranks.
struct Epilogue {
  EpilogueKind kind = EpilogueKind::bias;
  double value = 1;  ///< the factor of `scale`

  bool operator==(const Epilogue&) const = default;
};

/// Whether an epilogue makes one column of two. `Steps`: of a problem or of a task.
template <class Steps>
[[nodiscard]] bool joins_columns(const Steps& steps) {
  return std::ranges::any_of(steps, [](const auto& step) { return step.kind == EpilogueKind::swiglu_pairs; });
}

}  // namespace tilewire
