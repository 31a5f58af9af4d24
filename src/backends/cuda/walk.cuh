// CTAs that walk lanes of steps: wait, move or sum or multiply, post. Any number of threads (of squads: whole ones).
// Included by walk.cu, and by gemm_tiles.cuh, whose kernel has such CTAs beside those that compute.
#pragma once

#include "backends/cuda/signal_device.cuh"
#include "backends/cuda/spans.cuh"
#include "backends/cuda/steps.cuh"
#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

/// Threads that take a step together: a CTA, or a squad of one.
struct Squad {
  uint32_t index = 0;  ///< in the CTA
  uint32_t count = 1;  ///< of the CTA

  [[nodiscard]] __device__ uint32_t threads() const { return blockDim.x / count; }
  [[nodiscard]] __device__ uint32_t thread() const { return threadIdx.x % threads(); }
  /// Wait for all of it.
  __device__ void meet() const { asm volatile("bar.sync %0, %1;" ::"r"(1 + index), "r"(threads()) : "memory"); }
  /// The same; whether one of it says so.
  __device__ bool any(bool says) const {
    uint32_t some = 0;
    asm volatile(
        "{\n.reg .pred p, q;\n"
        "setp.ne.u32 p, %1, 0;\n"
        "barrier.cta.red.or.pred q, %2, %3, p;\n"
        "selp.u32 %0, 1, 0, q;\n}"
        : "=r"(some)
        : "r"(static_cast<uint32_t>(says)), "r"(1 + index), "r"(threads())
        : "memory");
    return some != 0;
  }
};

/// Records of a step, of each kind at most, that are in shared memory before it may begin. NOTE: what was read from
/// memory before a wait is often gone from the caches after it, and each look costs a microsecond then.
inline constexpr uint32_t kRecordsAtHand = 8;

struct StepRecords {
  SourceRecord sources[kRecordsAtHand];
  TargetRecord targets[kRecordsAtHand];
  PostRecord posts[kRecordsAtHand];
};

/// Shared memory of a walking CTA.
struct WalkShared {
  bool go[kMostSquads];
  StepRecords records[kMostSquads][2];  // of a step, while the one before is posted
  uint64_t here[kBulkPieces];           // BulkRoom::here
};

/// One squad's place in a lane.
struct Walker {
  LaneRecord lane{};
  uint32_t worker = 0;
  uint32_t workers = 1;
  uint64_t epoch = 0;
  Squad squad{};

  [[nodiscard]] __device__ bool shares() const { return lane.serial && lane.ctas > 1; }
};

__device__ inline Walker place_walker(const WalkLaunch& launch, uint32_t cta) {
  uint32_t index = 0;
  while (cta >= launch.table.lanes[index].ctas) cta -= launch.table.lanes[index++].ctas;
  const LaneRecord& lane = launch.table.lanes[index];
  Squad squad;
  if (lane.squads) squad = {threadIdx.x / kSquadThreads, blockDim.x / kSquadThreads};
  return {lane, cta * squad.count + squad.index, lane.ctas * squad.count, launch.counters->epoch, squad};
}

/// The first thread, before a step: in a shared lane, the step before has been posted. False if the team leaves.
__device__ inline bool await_turn(const WalkLaunch& launch, const Walker& me, uint32_t index, uint32_t task) {
  if (!me.shares() || index == 0) return true;
  const WaitRecord turn{me.lane.progress + 1, index, 0};
  return wait_signal(turn, me.epoch, launch.watch, task, kLaneTurn);
}

__device__ inline void post_step(const WalkLaunch& launch, const PostRecord* posts, const StepRecord& step) {
  post_signals(posts + step.first_post, step.num_posts);
  note_end(span_of(launch, step.task));
}

/// Bring records to shared memory, where they fit: then `from` is there, and `first` is 0.
template <typename Record>
__device__ inline void bring_records(const Record*& from, uint32_t& first, uint32_t count, Record* to,
                                     const Squad& squad) {
  if (count > kRecordsAtHand) return;
  constexpr uint32_t kWords = sizeof(Record) / sizeof(uint64_t);
  static_assert(sizeof(Record) % sizeof(uint64_t) == 0);
  const auto* words = reinterpret_cast<const uint64_t*>(from + first);
#pragma unroll 1
  for (uint32_t i = squad.thread(); i < count * kWords; i += squad.threads())
    reinterpret_cast<uint64_t*>(to)[i] = words[i];
  from = to;
  first = 0;
}

/// The first thread, before a step: its turn has come, and its signals are there. False if the team leaves. Of CTAs
/// that share a step the first one takes the times.
__device__ inline bool await_step(const WalkLaunch& launch, const Walker& me, uint32_t index, const StepRecord& step) {
  if (!await_turn(launch, me, index, step.task)) return false;
  TaskSpan* span = me.shares() && me.worker > 0 ? nullptr : span_of(launch, step.task);
  note_taken(span);
  const bool good =
      wait_signals(launch.table.waits + step.first_wait, step.num_waits, me.epoch, launch.watch, step.task);
  note_start(span, me.shares() ? 0 : me.worker);
  return good;
}

/// The first thread, after a step: the CTA that is last to finish its part posts. Orders all parts before the posts.
/// The last to leave the lane, where no other has a turn to wait for, puts its counters back: they count one call only.
__device__ inline void finish_step(const WalkLaunch& launch, const Walker& me, uint32_t index, const PostRecord* posts,
                                   const StepRecord& step) {
  if (me.shares()) {
    const uint64_t wanted = uint64_t{index + 1} * me.lane.ctas;
    __threadfence();
    const auto before = atomicAdd(reinterpret_cast<unsigned long long*>(me.lane.progress), 1ull);
    if (before + 1 != wanted) return;
    __threadfence();
  }
  post_step(launch, posts, step);
  if (!me.shares()) return;
  if (index + 1 < me.lane.num_steps) return post_signal({me.lane.progress + 1, 1, false});
  me.lane.progress[0] = 0;
  me.lane.progress[1] = 0;
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
  const uint64_t epoch = launch.counters->epoch;
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

/// All threads of the CTA. Leaves early where a wait failed: then the team is broken and nothing is posted any more.
template <bool kMultiplies>
__device__ inline void walk_role(const WalkLaunch& launch, uint32_t cta, WalkShared& shared, uint8_t* pieces) {
  const Walker me = place_walker(launch, cta);
  // NOTE: its barriers are made and used by one thread, so that nobody waits for them.
  BulkRoom room{me.lane.squads ? nullptr : pieces, shared.here};
  if (room.pieces != nullptr && threadIdx.x == 0) init_bulk(room);
  const Squad& squad = me.squad;
  Slice slice{0, 1, squad.thread(), squad.threads()};
  if (me.lane.serial) slice.index = me.worker, slice.count = me.workers;
  const uint32_t stride = me.lane.serial ? 1 : me.workers;
  volatile bool* go = shared.go;
  uint32_t turn = 0;
#pragma unroll 1
  for (uint32_t index = me.lane.serial ? 0 : me.worker; index < me.lane.num_steps; index += stride) {
    StepRecord step = launch.table.steps[me.lane.first_step + index];
    WalkTable table = launch.table;
    StepRecords& records = shared.records[squad.index][turn++ % 2];
    bring_records(table.sources, step.first_source, step.num_sources, records.sources, squad);
    bring_records(table.targets, step.first_target, step.num_targets, records.targets, squad);
    bring_records(table.posts, step.first_post, step.num_posts, records.posts, squad);
    if (slice.thread == 0) go[squad.index] = await_step(launch, me, index, step);
    squad.meet();
    if (!go[squad.index]) return;
    Patience patience{launch.watch, step.task, me.epoch, slice.thread == 0};
    if (patience.first) patience.span = span_of(launch, step.task);
    run_step<kMultiplies>(table, step, slice, room, patience);
    if (squad.any(patience.over)) return;
    if (slice.thread == 0) finish_step(launch, me, index, table.posts, step);
  }
}

/// CTA number `cta` of walking_ctas: heavy lanes first, then the light ones, a warp each. `pieces`: kBulkBytes of
/// shared memory, or none.
template <bool kMultiplies>
__device__ inline void walk_roles(const WalkLaunch& launch, uint32_t cta, WalkShared& shared,
                                  uint8_t* pieces = nullptr) {
  if (cta < launch.table.ctas) return walk_role<kMultiplies>(launch, cta, shared, pieces);
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
