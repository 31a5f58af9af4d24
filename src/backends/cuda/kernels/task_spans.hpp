// The times when tasks were taken, started and ended, as kernels record them, and the trace events made from them.
// Written by kernels (spans.cuh), read back by programs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tilewire/trace.hpp"

namespace tilewire::cuda {

struct TaskName;

/// One task's times on the device's clock, in nanoseconds. A task that has not run in the last call, which happens only
/// after a failure, has the times of an earlier call, or zeros.
struct alignas(32) TaskSpan {
  uint64_t taken = 0;  ///< undefined if the task has no waits
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t worker = 0;  ///< CTA of the lane
};

/// `count` zeroed spans on the current device, written in `stream`.
[[nodiscard]] std::shared_ptr<std::byte> new_spans(size_t count, cudaStream_t stream);

/// The trace events of `spans`; names[i] names the task of spans[i]. `plan` has the lanes of one rank, `lanes` their
/// numbers in the whole plan. `offset_ns`: from the device's clock to the clock of all ranks. A CTA loads a task while
/// it stores the results of the one before. So a worker is one row of a CTA, and no two tasks of a worker overlap.
[[nodiscard]] std::vector<TraceEvent> events_of(const Plan& plan, std::span<const int> lanes,
                                                std::span<const TaskName> names, std::span<const TaskSpan> spans,
                                                int64_t offset_ns);

}  // namespace tilewire::cuda
