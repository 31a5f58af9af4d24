// Signals on the device: post, and wait with a deadline; each function states what it orders.
// Used by all roles of the persistent kernels.
#pragma once

#include "backends/cuda/kernels/ptx.cuh"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// The number of earlier calls of the program. All CTAs of a call see the same number, even if some CTAs have counted
/// it (count_call).
__device__ inline uint64_t calls_before(const WorkerLaunch& launch) {
  uint64_t calls;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(calls) : "l"(&launch.counters->calls) : "memory");
  return calls / kWholeCall;
}

/// Bytes from the first copy of double-buffered LL data to the copy that this call uses. The same for all CTAs of a
/// call, as calls_before.
__device__ inline uint64_t copy_of_call(const WorkerLaunch& launch) {
  if (launch.copied == nullptr) return 0;
  uint64_t calls;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(calls) : "l"(launch.copied) : "memory");
  return (calls / kWholeCall) % 2 * launch.copy_distance;
}

/// The current value of a signal. Acquire at system scope: writes before the posts are visible to generic accesses of
/// this thread. Call fence.proxy.async before this thread's tensor loads of them.
__device__ inline uint64_t read_signal(const uint64_t* signal) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(signal) : "memory");
  return value;
}

/// Wait until this thread's tensor stores are complete (not only read), and order them before later generic accesses.
/// Call it on the thread that issued the stores, before that thread, or one that it synchronises with, posts.
__device__ inline void finish_tensor_stores() {
  ptx::bulk_wait_all();
  ptx::fence_async();
}

/// Add to a signal. Release: everything that this thread wrote, or saw by synchronising with its warp and CTA, is
/// visible to a thread that acquires the new value: on all GPUs if `remote`, else on this GPU. For tensor stores, call
/// finish_tensor_stores first, on the thread that issued them.
__device__ inline void post_signal(const PostRecord& post) {
  if (post.remote) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(post.signal), "l"(post.add) : "memory");
  } else {
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(post.signal), "l"(post.add) : "memory");
  }
}

/// post_signal to several signals with one release for all, as each release waits for all earlier writes, which takes
/// time.
__device__ inline void post_signals(const PostRecord* posts, uint32_t count) {
  if (count == 1) return post_signal(posts[0]);
  bool remote = false;
#pragma unroll 1
  for (uint32_t i = 0; i < count; ++i) remote = remote || posts[i].remote;
  if (remote) {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
  } else if (count > 0) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }
#pragma unroll 1
  for (uint32_t i = 0; i < count; ++i) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(posts[i].signal), "l"(posts[i].add) : "memory");
  }
}

/// Whether the team is broken, so that all of its kernels must leave. Orders nothing.
__device__ inline bool is_aborted(const WaitWatch& watch) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(watch.abort) : "memory");
  return value != 0;
}

/// The same for a wait that has polled `polls` times. Every 4,096 polls it also reads the host's stop flag, and sets
/// the device's abort flag by it. NOTE: host memory is far away; frequent reads of it slow down all copies.
__device__ inline bool must_leave(const WaitWatch& watch, uint32_t polls) {
  constexpr uint32_t kPollsOfHost = 4096;
  if (is_aborted(watch)) return true;
  if (watch.stop == nullptr || polls % kPollsOfHost != 0) return false;
  if (*reinterpret_cast<const volatile uint32_t*>(watch.stop) == 0) return false;
  atomicExch(watch.abort, 1u);
  return true;
}

/// Whether two calls of the rank overlap. False if the library orders the calls (`calls` is null).
__device__ inline bool calls_overlap(const TeamCalls* calls) {
  if (calls == nullptr) return false;
  const auto* now = reinterpret_cast<const volatile TeamCalls*>(calls);
  return now->begun > now->ended / kWholeCall + 1;
}

/// Let all kernels leave. The first kernel that reports gives the reason; it is complete before the host sees
/// `written`.
__device__ inline void report_failure(const WaitWatch& watch, const WaitFailure& failure) {
  atomicExch(watch.abort, 1u);
  if (atomicCAS(watch.abort + 1, 0u, 1u) != 0) return;
  WaitFailure& out = *watch.failure;
  out.task = failure.task;
  out.wait = failure.wait;
  out.owner = watch.owner;
  out.wanted = failure.wanted;
  out.seen = failure.seen;
  out.epoch = failure.epoch;
  out.overlaps = calls_overlap(watch.calls) ? 1 : 0;
  out.told = failure.told;
  __threadfence_system();
  *reinterpret_cast<volatile uint32_t*>(&out.written) = 1;
}

/// Count the call that begins, by one thread of its first launch; no other thread waits for it. With CallOrder::stream,
/// report an overlap unless all calls before have ended.
__device__ inline void note_call(const WorkerLaunch& launch) {
  TeamCalls* calls = launch.watch.calls;
  if (calls == nullptr || !launch.begins) return;
  const uint64_t before = atomicAdd(reinterpret_cast<unsigned long long*>(&calls->begun), 1ull);
  const uint64_t ended = reinterpret_cast<volatile TeamCalls*>(calls)->ended;
  // NOTE: other CTAs of this call may have ended already; their parts are less than a call.
  if (ended / kWholeCall != before)
    report_failure(launch.watch, {.wait = kOverlap, .wanted = before, .seen = ended / kWholeCall});
}

/// Wait for one signal. False if the deadline passes or the team breaks; then report it, if it is the rank's first
/// failure. Acquire at system scope: see read_signal.
__device__ inline bool wait_signal(const WaitRecord& wait, uint64_t epoch, const WaitWatch& watch, uint32_t task,
                                   uint32_t index) {
  const uint64_t wanted = epoch * wait.total + wait.at_least;
  uint64_t seen = read_signal(wait.signal);
  if (seen >= wanted) return true;
  const uint64_t begin = ptx::global_time_ns();
#pragma unroll 1
  for (uint32_t polls = 1; seen < wanted; ++polls) {
    if (polls % 32 == 0) {
      const bool told = must_leave(watch, polls);
      if (told || ptx::global_time_ns() - begin > watch.timeout_ns) {
        // A CTA's turn in a lane fails only because another wait has failed: report that one.
        if (told && index == kLaneTurn) return false;
        report_failure(watch,
                       {.task = task, .wait = index, .wanted = wanted, .seen = seen, .epoch = epoch, .told = told});
        return false;
      }
    }
    seen = read_signal(wait.signal);
  }
  return true;
}

/// Wait for all signals of a task. Generic accesses of this thread then see the writes before the posts.
__device__ inline bool all_signals_come(const WaitRecord* waits, uint32_t count, uint64_t epoch, const WaitWatch& watch,
                                        uint32_t task) {
#pragma unroll 1
  for (uint32_t i = 0; i < count; ++i) {
    if (!wait_signal(waits[i], epoch, watch, task, waits[i].index)) return false;
  }
  return true;
}

/// The same for the thread that then issues the task's tensor loads: these see the writes, too.
__device__ inline bool wait_signals(const WaitRecord* waits, uint32_t count, uint64_t epoch, const WaitWatch& watch,
                                    uint32_t task) {
  if (!all_signals_come(waits, count, epoch, watch, task)) return false;
  ptx::fence_async();
  return true;
}

/// Whether all signals of a task are there now. If so, memory is ordered as by wait_signals.
__device__ inline bool signals_are_there(const WaitRecord* waits, uint32_t count, uint64_t epoch) {
#pragma unroll 1
  for (uint32_t i = 0; i < count; ++i) {
    if (read_signal(waits[i].signal) < epoch * waits[i].total + waits[i].at_least) return false;
  }
  if (count > 0) ptx::fence_async();
  return true;
}

}  // namespace tilewire::cuda
