// Lanes of one thread: handshakes, and the gates of what streams do. What every step posts.
// Used by walk.cuh and walk.cu.
#pragma once

#include "backends/cuda/signal_device.cuh"
#include "backends/cuda/spans.cuh"
#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

__device__ inline void post_step(const WalkLaunch& launch, const PostRecord* posts, const StepRecord& step) {
  post_signals(posts + step.first_post, step.num_posts);
  note_end(span_of(launch, step.task));
}

/// One thread of a kernel before or after a call in line. NOTE: what the call wrote is visible here, as it ended before
/// the kernel after it began; each post passes that on.
__device__ inline void open_walk(const WalkLaunch& launch, const Opening& opening) {
  if (opening.waited && is_aborted(launch.watch)) return;
  if (opening.notes_begin) note_taken(span_of(launch, opening.task)), note_start(span_of(launch, opening.task), 0);
  post_signals(opening.posts, opening.num_posts);
  note_end(span_of(launch, opening.task));
}

/// Let what a stream does behind a gate begin. What this thread has acquired is visible to it.
__device__ inline void open_gate(Gate* gate) {
  asm volatile("st.release.sys.global.u32 [%0], 1;" ::"l"(&gate->open) : "memory");
}

/// Whether what a stream did behind a gate is over; then the gate is as before. What it wrote is visible to whoever
/// acquires what is posted next.
__device__ inline bool gate_is_passed(Gate* gate) {
  uint32_t done = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(done) : "l"(&gate->done) : "memory");
  if (done == 0) return false;
  asm volatile("st.relaxed.sys.global.u32 [%0], 0;" ::"l"(&gate->open) : "memory");
  asm volatile("st.relaxed.sys.global.u32 [%0], 0;" ::"l"(&gate->done) : "memory");
  return true;
}

/// What comes behind a gate that was opened ahead has begun.
__device__ inline void note_begin(const WalkLaunch& launch, const StepRecord& step) {
  note_taken(span_of(launch, step.task));
  note_start(span_of(launch, step.task), 0);
}

/// Open the gate of step `index`, whose waits are over, and those of the steps behind it as soon as theirs are: the
/// stream takes them one after another, and need not come back for each. Post as they end. Returns the first step that
/// was not begun, or nothing (num_steps + 1) if the team leaves.
__device__ inline uint32_t pass_gates(const WalkLaunch& launch, const LaneRecord& lane, uint32_t index,
                                      uint64_t epoch) {
  const StepRecord* steps = launch.table.steps + lane.first_step;
  uint32_t opened = index;
  open_gate(steps[opened++].gate);
  uint64_t begin = ptx::global_time_ns();
#pragma unroll 1
  for (uint32_t polls = 1; index < opened; ++polls) {
    const StepRecord& next = steps[opened];
    if (opened < lane.num_steps && next.act == Act::gate &&
        signals_are_there(launch.table.waits + next.first_wait, next.num_waits, epoch)) {
      open_gate(steps[opened++].gate);
    }
    if (gate_is_passed(steps[index].gate)) {
      post_step(launch, launch.table.posts, steps[index++]);
      begin = ptx::global_time_ns();
      if (index < opened) note_begin(launch, steps[index]);
    }
    if (polls % 32 != 0) continue;
    if (must_leave(launch.watch, polls)) return lane.num_steps + 1;
    if (ptx::global_time_ns() - begin <= launch.watch.timeout_ns) continue;
    report_failure(launch.watch, {.task = steps[index].task, .wait = kCopyEnd});
    return lane.num_steps + 1;
  }
  return index;
}

/// After a failure: let every copy of the lane go, so that its stream comes to an end.
__device__ inline void open_gates(const WalkLaunch& launch, const LaneRecord& lane) {
#pragma unroll 1
  for (uint32_t index = 0; index < lane.num_steps; ++index) {
    Gate* gate = launch.table.steps[lane.first_step + index].gate;
    if (gate != nullptr) open_gate(gate);
  }
}

/// One thread walks a lane that moves nothing by itself.
__device__ inline void walk_light_lane(const WalkLaunch& launch, uint32_t index) {
  const LaneRecord lane = launch.table.lanes[index];
  const uint64_t epoch = calls_before(launch);
#pragma unroll 1
  for (uint32_t i = 0; i < lane.num_steps;) {
    const StepRecord& step = launch.table.steps[lane.first_step + i];
    TaskSpan* span = span_of(launch, step.task);
    note_taken(span);
    if (!wait_signals(launch.table.waits + step.first_wait, step.num_waits, epoch, launch.watch, step.task)) {
      return open_gates(launch, lane);
    }
    note_start(span, 0);
    if (step.act == Act::gate) {
      i = pass_gates(launch, lane, i, epoch);
      if (i > lane.num_steps) return open_gates(launch, lane);
    } else {
      post_step(launch, launch.table.posts, step);
      ++i;
    }
  }
}

}  // namespace tilewire::cuda
