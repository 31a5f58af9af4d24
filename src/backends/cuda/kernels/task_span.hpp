// The times when a task was taken, started and ended, as kernels record them.
// Written by kernels (spans.cuh), read back by programs (runtime/trace.hpp).
#pragma once

#include <cstdint>

namespace tilewire::cuda {

/// One task's times on the device's clock, in nanoseconds. A task that has not run in the last call, which happens only
/// after a failure, has the times of an earlier call, or zeros.
struct alignas(32) TaskSpan {
  uint64_t taken = 0;  ///< undefined if the task has no waits
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t worker = 0;  ///< CTA of the lane
};

}  // namespace tilewire::cuda
