// The device's notes of when a task was taken, started and ended: once each for a task, by one thread.
// Used by walk.cuh and the GEMM kernel.
#pragma once

#include "backends/cuda/ptx.cuh"
#include "backends/cuda/task_spans.hpp"
#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

/// Where the times of a task go; nowhere if nobody asked for a trace.
__device__ inline TaskSpan* span_of(const WalkLaunch& launch, uint32_t task) {
  return launch.spans == nullptr ? nullptr : launch.spans + task;
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
