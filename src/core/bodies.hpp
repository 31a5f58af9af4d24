// The table of compute bodies: what a task of each makes of its operands. The checker (check/bodies.cpp) and the host
// (backends/host/tasks.cpp) have a row for each beside it; what a backend implements stands in its table of known
// parts.
#pragma once

#include <cstdint>

#include "tilewire/plan.hpp"

namespace tilewire {

struct BodyFacts {
  Body body = Body::gemm;
  /// Rows x cols of the result.
  Shape (*result)(const Task& task) = nullptr;
  /// Additions and multiplications.
  double (*ops)(const Task& task) = nullptr;
  /// Rows of A, or of reads[0], that it reads, again where it reads them again.
  int64_t (*rows_read)(const Task& task) = nullptr;
  bool multiplies = false;  ///< along K (depth_of), and may have addends
  bool by_indices = false;  ///< reads[1] are int32 indices of rows of reads[0]
};

/// The row of a body.
[[nodiscard]] const BodyFacts& facts_of(Body body);

}  // namespace tilewire
