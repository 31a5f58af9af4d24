// Epilogue steps: functions applied to the finished elements of an output.
// Used by problems, which request them, and by plans, whose tasks apply them.
#pragma once

namespace tilewire {

enum class EpilogueKind {
  bias,
  gelu,
  relu,
  scale,
  residual,  ///< add a matrix of the output's shape
};

/// One step applied to finished elements, once, after the reduction across ranks.
struct Epilogue {
  EpilogueKind kind = EpilogueKind::bias;
  double value = 1;  ///< the factor of `scale`

  bool operator==(const Epilogue&) const = default;
};

}  // namespace tilewire
