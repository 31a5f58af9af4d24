// CTAs that walk lanes of steps: wait, move or sum or multiply, post. Any number of threads.
// Included by walk.cu, and by gemm_tiles.cuh, whose kernel has such CTAs beside those that compute.
#pragma once

#include "backends/cuda/signal_device.cuh"
#include "backends/cuda/spans.cuh"
#include "backends/cuda/steps.cuh"
#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

/// One CTA's place in a lane.
struct Walker {
  LaneRecord lane{};
  uint32_t worker = 0;
  uint64_t epoch = 0;

  [[nodiscard]] __device__ bool shares() const { return lane.serial && lane.ctas > 1; }
};

__device__ inline Walker place_walker(const WalkLaunch& launch, uint32_t cta) {
  uint32_t index = 0;
  while (cta >= launch.table.lanes[index].ctas) cta -= launch.table.lanes[index++].ctas;
  return {launch.table.lanes[index], cta, launch.counters->epoch};
}

/// Thread 0, before a step: in a shared lane, the step before has been posted. False if the team leaves.
__device__ inline bool await_turn(const WalkLaunch& launch, const Walker& me, uint32_t index, uint32_t task) {
  if (!me.shares() || index == 0) return true;
  const WaitRecord turn{me.lane.progress + 1, index, me.lane.num_steps};
  return wait_signal(turn, me.epoch, launch.watch, task, kLaneTurn);
}

/// Thread 0, before a step: its turn has come, and its signals are there. False if the team leaves. Of CTAs that share
/// a step the first one takes the times.
__device__ inline bool await_step(const WalkLaunch& launch, const Walker& me, uint32_t index, const StepRecord& step) {
  if (!await_turn(launch, me, index, step.task)) return false;
  TaskSpan* span = me.shares() && me.worker > 0 ? nullptr : span_of(launch, step.task);
  note_taken(span);
  const bool good =
      wait_signals(launch.table.waits + step.first_wait, step.num_waits, me.epoch, launch.watch, step.task);
  note_start(span, me.shares() ? 0 : me.worker);
  return good;
}

/// Thread 0, after a step: the CTA that is last to finish its part posts. Orders all parts before the posts.
__device__ inline void finish_step(const WalkLaunch& launch, const Walker& me, uint32_t index, const StepRecord& step) {
  if (me.shares()) {
    const uint64_t wanted = (me.epoch * me.lane.num_steps + index + 1) * me.lane.ctas;
    __threadfence();
    const auto before = atomicAdd(reinterpret_cast<unsigned long long*>(me.lane.progress), 1ull);
    if (before + 1 != wanted) return;
    __threadfence();
  }
  for (uint32_t i = 0; i < step.num_posts; ++i) post_signal(launch.table.posts[step.first_post + i]);
  note_end(span_of(launch, step.task));
  if (me.shares()) post_signal({me.lane.progress + 1, 1, false});
}

/// Hand a copy to its stream and wait for its end. What the copy wrote is visible to whoever acquires what is posted.
__device__ inline bool pass_gate(const WalkLaunch& launch, Gate* gate, uint32_t task) {
  asm volatile("st.release.sys.global.u32 [%0], 1;" ::"l"(&gate->open) : "memory");
  const uint64_t begin = ptx::global_time_ns();
  uint32_t done = 0;
  for (uint32_t polls = 1; done == 0; ++polls) {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(done) : "l"(&gate->done) : "memory");
    if (polls % 32 != 0 || done != 0) continue;
    if (must_leave(launch.watch, polls)) return false;
    if (ptx::global_time_ns() - begin > launch.watch.timeout_ns) {
      report_failure(launch.watch, {.task = task, .wait = kCopyEnd});
      return false;
    }
  }
  asm volatile("st.relaxed.sys.global.u32 [%0], 0;" ::"l"(&gate->done) : "memory");
  return true;
}

/// After a failure: let every copy of the lane go, so that its stream comes to an end.
__device__ inline void open_gates(const WalkLaunch& launch, const LaneRecord& lane) {
  for (uint32_t index = 0; index < lane.num_steps; ++index) {
    Gate* gate = launch.table.steps[lane.first_step + index].gate;
    if (gate != nullptr) asm volatile("st.release.sys.global.u32 [%0], 1;" ::"l"(&gate->open) : "memory");
  }
}

/// One thread walks a lane that moves nothing by itself.
__device__ inline void walk_light_lane(const WalkLaunch& launch, uint32_t index) {
  const LaneRecord lane = launch.table.lanes[index];
  const uint64_t epoch = launch.counters->epoch;
  for (uint32_t i = 0; i < lane.num_steps; ++i) {
    const StepRecord& step = launch.table.steps[lane.first_step + i];
    TaskSpan* span = span_of(launch, step.task);
    note_taken(span);
    bool good = wait_signals(launch.table.waits + step.first_wait, step.num_waits, epoch, launch.watch, step.task);
    note_start(span, 0);
    good = good && (step.act != Act::gate || pass_gate(launch, step.gate, step.task));
    if (!good) return open_gates(launch, lane);
    for (uint32_t post = 0; post < step.num_posts; ++post) post_signal(launch.table.posts[step.first_post + post]);
    note_end(span);
  }
}

/// All threads of the CTA. Leaves early where a wait failed: then the team is broken and nothing is posted any more.
/// `go`: one word of shared memory.
template <bool kMultiplies>
__device__ inline void walk_role(const WalkLaunch& launch, uint32_t cta, volatile bool& go) {
  const Walker me = place_walker(launch, cta);
  const Slice slice = me.lane.serial ? Slice{me.worker, me.lane.ctas} : Slice{0, 1};
  const uint32_t stride = me.lane.serial ? 1 : me.lane.ctas;
  for (uint32_t index = me.lane.serial ? 0 : me.worker; index < me.lane.num_steps; index += stride) {
    const StepRecord step = launch.table.steps[me.lane.first_step + index];
    if (threadIdx.x == 0) go = await_step(launch, me, index, step);
    __syncthreads();
    if (!go) return;
    run_step<kMultiplies>(launch.table, step, slice);
    __syncthreads();
    if (threadIdx.x == 0) finish_step(launch, me, index, step);
  }
}

/// CTA number `cta` of walking_ctas: heavy lanes first, then the light ones, a warp each. `go`: shared memory.
template <bool kMultiplies>
__device__ inline void walk_roles(const WalkLaunch& launch, uint32_t cta, volatile bool& go) {
  if (cta < launch.table.ctas) return walk_role<kMultiplies>(launch, cta, go);
  const uint32_t light = (cta - launch.table.ctas) * (blockDim.x / 32) + threadIdx.x / 32;
  if (threadIdx.x % 32 != 0 || light >= launch.table.light_lanes) return;
  walk_light_lane(launch, launch.table.num_lanes - launch.table.light_lanes + light);
}

/// All threads of every CTA of the grid, last: when all have ended, the call is over.
/// NOTE: a second kernel for this would hold up other ranks' kernels in a queue of the device that they share.
__device__ inline void leave_call(CallCounters* counters) {
  if (counters == nullptr) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  const auto before = atomicAdd(reinterpret_cast<unsigned long long*>(&counters->ended), 1ull);
  if (before + 1 != gridDim.x) return;
  counters->ended = 0;
  counters->epoch += 1;
}

}  // namespace tilewire::cuda
