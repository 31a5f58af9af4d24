// The device's notes of when a task was taken, started and ended: once each for a task, by one thread.
// Used by workers.cuh and the GEMM kernel.
#pragma once

#include "backends/cuda/kernels/ptx.cuh"
#include "backends/cuda/kernels/task_spans.hpp"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// Where the times of a task go; nowhere if nobody asked for a trace.
__device__ inline TaskSpan* span_of(const WorkerLaunch& launch, uint32_t task) {
  return launch.spans == nullptr ? nullptr : launch.spans + task;
}

/// The loading warp of a GEMM CTA notes in shared memory, which takes fewer registers.
__device__ inline void note_low(const WorkerLaunch& launch, uint32_t& time) {
  if (launch.spans != nullptr) time = ptx::global_time_low();
}
/// A task ends less than 4 s after it was taken; what of it was noted by low words.
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

/// A worker has the task, and begins to wait for its signals.
__device__ inline void note_taken(TaskSpan* span) {
  if (span != nullptr) span->taken = ptx::global_time_ns();
}
/// Its waits are over.
__device__ inline void note_start(TaskSpan* span, uint32_t worker) {
  if (span == nullptr) return;
  span->start = ptx::global_time_ns();
  span->worker = worker;
}
/// It has posted.
__device__ inline void note_end(TaskSpan* span) {
  if (span != nullptr) span->end = ptx::global_time_ns();
}

}  // namespace tilewire::cuda
