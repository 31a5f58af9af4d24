// Sync-only lanes, each executed by one thread: handshakes, and doorbells of streams. Also the posts of every op.
// Used by all worker kernels, the GEMV kernel and the kernel of rows.
#pragma once

#include "backends/cuda/kernels/signal_device.cuh"
#include "backends/cuda/kernels/spans.cuh"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

__device__ inline void post_op(const WorkerLaunch& launch, const PostRecord* posts, const OpRecord& step) {
  post_signals(posts + step.first_post, step.num_posts);
  note_end(span_of(launch, step.task));
}

/// The preamble, by one thread of a kernel before or after a stream-ordered GEMM. NOTE: the GEMM ended before the
/// kernel after it began, so its writes are visible here; each post's release passes them on.
__device__ inline void open_workers(const WorkerLaunch& launch, const Preamble& preamble) {
  if (preamble.waited && is_aborted(launch.watch)) return;
  if (preamble.notes_begin) note_taken(span_of(launch, preamble.task)), note_start(span_of(launch, preamble.task), 0);
  post_signals(preamble.posts, preamble.num_posts);
  note_end(span_of(launch, preamble.task));
}

/// Open a doorbell: the stream may begin its work. Release: everything that this thread has acquired is visible to it.
__device__ inline void ring_doorbell(Doorbell* doorbell) {
  asm volatile("st.release.sys.global.u32 [%0], 1;" ::"l"(&doorbell->open) : "memory");
}

/// Whether the stream's work behind a doorbell is complete; if so, reset the doorbell. Its writes are visible to a
/// thread that acquires the next post.
__device__ inline bool doorbell_is_done(Doorbell* doorbell) {
  uint32_t done = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(done) : "l"(&doorbell->done) : "memory");
  if (done == 0) return false;
  asm volatile("st.relaxed.sys.global.u32 [%0], 0;" ::"l"(&doorbell->open) : "memory");
  asm volatile("st.relaxed.sys.global.u32 [%0], 0;" ::"l"(&doorbell->done) : "memory");
  return true;
}

/// Record the begin of stream work whose doorbell was opened ahead.
__device__ inline void note_begin(const WorkerLaunch& launch, const OpRecord& step) {
  note_taken(span_of(launch, step.task));
  note_start(span_of(launch, step.task), 0);
}

/// Open the doorbell of op `index`, whose waits are over, and those of later ops as soon as their waits are over: the
/// stream then goes from one to the next without waiting for this thread. Post as each ends. Returns the first op that
/// was not begun, or num_ops + 1 if the team breaks.
__device__ inline uint32_t pass_doorbells(const WorkerLaunch& launch, const LaneRecord& lane, uint32_t index,
                                          uint64_t epoch) {
  const OpRecord* steps = launch.table.ops + lane.first_op;
  uint32_t opened = index;
  ring_doorbell(steps[opened++].doorbell);
  uint64_t begin = ptx::global_time_ns();
#pragma unroll 1
  for (uint32_t polls = 1; index < opened; ++polls) {
    const OpRecord& next = steps[opened];
    if (opened < lane.num_ops && next.code == OpCode::doorbell &&
        signals_are_there(launch.table.waits + next.first_wait, next.num_waits, epoch)) {
      ring_doorbell(steps[opened++].doorbell);
    }
    if (doorbell_is_done(steps[index].doorbell)) {
      post_op(launch, launch.table.posts, steps[index++]);
      begin = ptx::global_time_ns();
      if (index < opened) note_begin(launch, steps[index]);
    }
    if (polls % 32 != 0) continue;
    if (must_leave(launch.watch, polls)) return lane.num_ops + 1;
    if (ptx::global_time_ns() - begin <= launch.watch.timeout_ns) continue;
    report_failure(launch.watch, {.task = steps[index].task, .wait = kCopyEnd});
    return lane.num_ops + 1;
  }
  return index;
}

/// After a failure: open all doorbells of the lane, so that its stream ends.
__device__ inline void ring_doorbells(const WorkerLaunch& launch, const LaneRecord& lane) {
#pragma unroll 1
  for (uint32_t index = 0; index < lane.num_ops; ++index) {
    Doorbell* doorbell = launch.table.ops[lane.first_op + index].doorbell;
    if (doorbell != nullptr) ring_doorbell(doorbell);
  }
}

/// One thread executes a sync-only lane.
__device__ inline void run_sync_lane(const WorkerLaunch& launch, uint32_t index) {
  const LaneRecord lane = launch.table.lanes[index];
  const uint64_t epoch = calls_before(launch);
#pragma unroll 1
  for (uint32_t i = 0; i < lane.num_ops;) {
    const OpRecord& step = launch.table.ops[lane.first_op + i];
    TaskSpan* span = span_of(launch, step.task);
    note_taken(span);
    if (!wait_signals(launch.table.waits + step.first_wait, step.num_waits, epoch, launch.watch, step.task)) {
      return ring_doorbells(launch, lane);
    }
    note_start(span, 0);
    if (step.code == OpCode::doorbell) {
      i = pass_doorbells(launch, lane, i, epoch);
      if (i > lane.num_ops) return ring_doorbells(launch, lane);
    } else {
      post_op(launch, launch.table.posts, step);
      ++i;
    }
  }
}

/// CTA number `cta` of those with sync-only lanes: the first thread of each warp executes one.
__device__ inline void run_sync_lanes(const WorkerLaunch& launch, uint32_t cta) {
  const uint32_t lane = cta * (blockDim.x / 32) + threadIdx.x / 32;
  if (threadIdx.x % 32 == 0 && lane < launch.table.sync_lanes)
    run_sync_lane(launch, launch.table.num_lanes - launch.table.sync_lanes + lane);
}

}  // namespace tilewire::cuda
