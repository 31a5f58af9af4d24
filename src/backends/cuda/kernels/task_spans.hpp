// When tasks were taken, started and ended, as kernels note it, and the same as events of a trace.
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

/// One task's times by the device's clock, in nanoseconds; those of an earlier call where it has not run,
/// which is after a failure only, and zeros before the first.
struct alignas(32) TaskSpan {
  uint64_t taken = 0;  ///< means nothing where the task has no waits
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t worker = 0;  ///< CTA of the lane
};

/// Zeroed ones on the current device, by way of `stream`.
[[nodiscard]] std::shared_ptr<std::byte> new_spans(size_t count, cudaStream_t stream);

/// What [i] of `spans` says of the task that [i] of `names` names. `plan` has lanes of one rank, `lanes` says where
/// they are in the whole plan. `offset_ns`: from the device's clock to the one of all ranks. A CTA loads a task while
/// results of the one before leave: a worker is one of its rows, so that no two tasks of a worker overlap.
[[nodiscard]] std::vector<TraceEvent> events_of(const Plan& plan, std::span<const int> lanes,
                                                std::span<const TaskName> names, std::span<const TaskSpan> spans,
                                                int64_t offset_ns);

}  // namespace tilewire::cuda
