// The device's verbs on signals: post and bounded wait, and what each orders.
// Used by every role of the persistent kernels.
#pragma once

#include "backends/cuda/kernels/ptx.cuh"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// How many calls of the program came before: the same for all CTAs of a call, whoever has ended.
__device__ inline uint64_t calls_before(const WorkerLaunch& launch) {
  uint64_t calls;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(calls) : "l"(&launch.counters->calls) : "memory");
  return calls / kWholeCall;
}

/// The value of a signal now. Acquire at system scope: what its posters wrote before is visible to generic accesses
/// of this thread; fence.proxy.async must follow before this thread's tensor loads of it.
__device__ inline uint64_t read_signal(const uint64_t* signal) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(signal) : "memory");
  return value;
}

/// Call it on the thread that issued tensor stores, before it (or a thread that it synchronises with) posts. Waits for
/// the stores to be complete (not only read), and orders them before generic accesses that follow.
__device__ inline void finish_tensor_stores() {
  ptx::bulk_wait_all();
  ptx::fence_async();
}

/// Add to a signal. Release: everything that this thread wrote, or saw by synchronising with its warp and CTA, is
/// visible to whoever acquires the new value; on all GPUs if `remote`, else on this one. Tensor stores:
/// finish_tensor_stores first, on their thread.
__device__ inline void post_signal(const PostRecord& post) {
  if (post.remote) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(post.signal), "l"(post.add) : "memory");
  } else {
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(post.signal), "l"(post.add) : "memory");
  }
}

/// post_signal to each of several signals, with one release for all: it waits for what was written, which takes a
/// while.
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

/// Whether somebody asked all kernels of the team to leave. Orders nothing.
__device__ inline bool is_aborted(const WaitWatch& watch) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(watch.abort) : "memory");
  return value != 0;
}

/// The same for a wait that has looked `polls` times: now and then it looks at the host's word too, and passes it on.
/// NOTE: the host's memory is far away; looked at often, it slows down all copies.
__device__ inline bool must_leave(const WaitWatch& watch, uint32_t polls) {
  constexpr uint32_t kPollsOfHost = 4096;
  if (is_aborted(watch)) return true;
  if (watch.stop == nullptr || polls % kPollsOfHost != 0) return false;
  if (*reinterpret_cast<const volatile uint32_t*>(watch.stop) == 0) return false;
  atomicExch(watch.abort, 1u);
  return true;
}

/// Whether two calls of the rank are under way, where their order is the caller's.
__device__ inline bool calls_overlap(const TeamCalls* calls) {
  if (calls == nullptr) return false;
  const auto* now = reinterpret_cast<const volatile TeamCalls*>(calls);
  return now->begun > now->ended + 1;
}

/// Ask all to leave; the first to report says why. The report is complete before `written` is seen by the host.
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

/// The first launch of a call begins, by one thread of it that others need not wait for: where the caller keeps calls
/// in order, all before have ended.
__device__ inline void note_call(const WorkerLaunch& launch) {
  TeamCalls* calls = launch.watch.calls;
  if (calls == nullptr || !launch.begins) return;
  const uint64_t before = atomicAdd(reinterpret_cast<unsigned long long*>(&calls->begun), 1ull);
  const uint64_t ended = reinterpret_cast<volatile TeamCalls*>(calls)->ended;
  if (ended != before) report_failure(launch.watch, {.wait = kOverlap, .wanted = before, .seen = ended});
}

/// Wait for one signal; false if the deadline passed or the team leaves; then the first wait of a task to fail is
/// reported. Acquire at system scope: see read_signal.
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
        // A turn in a lane comes late because another wait does: that one is worth a report.
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

/// Wait for all signals of a task: generic accesses see what was posted.
__device__ inline bool all_signals_come(const WaitRecord* waits, uint32_t count, uint64_t epoch, const WaitWatch& watch,
                                        uint32_t task) {
#pragma unroll 1
  for (uint32_t i = 0; i < count; ++i) {
    if (!wait_signal(waits[i], epoch, watch, task, waits[i].index)) return false;
  }
  return true;
}

/// The same by the thread that then issues the task's tensor loads: they see it, too.
__device__ inline bool wait_signals(const WaitRecord* waits, uint32_t count, uint64_t epoch, const WaitWatch& watch,
                                    uint32_t task) {
  if (!all_signals_come(waits, count, epoch, watch, task)) return false;
  ptx::fence_async();
  return true;
}

/// Whether no signal of a task would hold it up now. If so, ordered as wait_signals.
__device__ inline bool signals_are_there(const WaitRecord* waits, uint32_t count, uint64_t epoch) {
#pragma unroll 1
  for (uint32_t i = 0; i < count; ++i) {
    if (read_signal(waits[i].signal) < epoch * waits[i].total + waits[i].at_least) return false;
  }
  if (count > 0) ptx::fence_async();
  return true;
}

}  // namespace tilewire::cuda
