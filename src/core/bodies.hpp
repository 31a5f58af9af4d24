// The table of compute bodies: result shape, operations and reads of a task.
// The checker (check/bodies.cpp) and the host backend (backends/host/tasks.cpp) have tables of their own beside it.
// Each backend lists the bodies that it implements in its table of known features.
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
  /// Rows of A, or of reads[0], that a task reads; a row counts each time that it is read.
  int64_t (*rows_read)(const Task& task) = nullptr;
  int64_t least_reads = 2;
  int64_t most_reads = 2;
  bool multiplies = false;       ///< a product along K (depth_of); may have addends
  bool by_indices = false;       ///< reads[1] are int32 indices of rows of reads[0]
  bool several_results = false;  ///< the results are several matrices, one for each write
};

/// The row of a body.
[[nodiscard]] const BodyFacts& facts_of(Body body);

}  // namespace tilewire
