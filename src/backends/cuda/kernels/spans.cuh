// The times when a task was taken, started and ended, on the device: one thread writes them, once for each task.
// Used by workers.cuh and the GEMM kernel.
#pragma once

#include "backends/cuda/kernels/ptx.cuh"
#include "backends/cuda/kernels/task_span.hpp"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// The place for a task's times; null if the call is not traced.
__device__ inline TaskSpan* span_of(const WorkerLaunch& launch, uint32_t task) {
  return launch.spans == nullptr ? nullptr : launch.spans + task;
}

/// The producer of a GEMM CTA keeps 32-bit times in shared memory, which takes fewer registers.
__device__ inline void note_low(const WorkerLaunch& launch, uint32_t& time) {
  if (launch.spans != nullptr) time = ptx::global_time_low();
}
/// Complete the times of a task from their low 32 bits. A task ends less than 4 s after it was taken.
__device__ inline void note_whole(const WorkerLaunch& launch, uint32_t task, uint32_t taken, uint32_t start,
                                  uint32_t worker) {
  TaskSpan& span = launch.spans[task];
  const uint64_t end = ptx::global_time_ns();
  const auto low = static_cast<uint32_t>(end);
  span.taken = end - (low - taken);
  span.start = end - (low - start);
  span.end = end;
  span.worker = worker;
}

/// A worker has taken the task, and begins to wait for its signals.
__device__ inline void note_taken(TaskSpan* span) {
  if (span != nullptr) span->taken = ptx::global_time_ns();
}
/// The task's waits are over.
__device__ inline void note_start(TaskSpan* span, uint32_t worker) {
  if (span == nullptr) return;
  span->start = ptx::global_time_ns();
  span->worker = worker;
}
/// The task has posted.
__device__ inline void note_end(TaskSpan* span) {
  if (span != nullptr) span->end = ptx::global_time_ns();
}

}  // namespace tilewire::cuda
