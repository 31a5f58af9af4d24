// Memory for the times of tasks, and the trace events made from them.
// Used by programs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backends/cuda/kernels/task_span.hpp"
#include "tilewire/trace.hpp"

namespace tilewire::cuda {

struct TaskName;

/// `count` zeroed spans on the current device, written in `stream`.
[[nodiscard]] std::shared_ptr<std::byte> new_spans(size_t count, cudaStream_t stream);

/// The trace events of `spans`; names[i] names the task of spans[i]. `plan` has the lanes of one rank, `lanes` their
/// numbers in the whole plan. `offset_ns`: from the device's clock to the clock of all ranks. A CTA loads a task while
/// it stores the results of the one before. So a worker is one row of a CTA, and no two tasks of a worker overlap.
[[nodiscard]] std::vector<TraceEvent> events_of(const Plan& plan, std::span<const int> lanes,
                                                std::span<const TaskName> names, std::span<const TaskSpan> spans,
                                                int64_t offset_ns);

}  // namespace tilewire::cuda
