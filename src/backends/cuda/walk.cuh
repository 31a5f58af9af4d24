// CTAs that walk lanes of steps: wait, move or sum or multiply, post. Whole squads of threads, or any number without.
// Included by walk.cu, and by gemm_tiles.cuh, whose kernel has such CTAs beside those that compute.
#pragma once

#include "backends/cuda/light_lanes.cuh"
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
  __device__ void meet() const { ptx::cta_meet(1 + index, threads()); }
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
  uint32_t asked[kMostSquads];               // step of a late lane
  StepRecords records[kMostSquads][2];       // of a step, while the one before is posted
  uint64_t here[kMostSquads * kBulkPieces];  // BulkRoom::here
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
  return {lane, cta * squad.count + squad.index, lane.ctas * squad.count, calls_before(launch), squad};
}

/// The first thread, before a step: in a shared lane, the step before has been posted. False if the team leaves.
__device__ inline bool await_turn(const WalkLaunch& launch, const Walker& me, uint32_t index, uint32_t task) {
  if (!me.shares() || index == 0) return true;
  const WaitRecord turn{me.lane.progress + 1, index, 0};
  return wait_signal(turn, me.epoch, launch.watch, task, kLaneTurn);
}

/// A squad of late CTA `cta`, in late lane `index`.
__device__ inline Walker place_late(const WalkLaunch& launch, uint32_t cta, uint32_t index) {
  const LaneRecord& lane = launch.table.lanes[index];
  Squad squad;
  if (lane.squads) squad = {threadIdx.x / kSquadThreads, blockDim.x / kSquadThreads};
  return {lane, (lane.ctas + cta) * squad.count + squad.index, 1, calls_before(launch), squad};
}

/// The squad's first step, and the one after `index`.
__device__ inline uint32_t next_step(const Walker& me, WalkShared& shared, uint32_t stride, uint32_t index) {
  if (!me.lane.late) return index + stride;
  volatile uint32_t& asked = shared.asked[me.squad.index];
  if (me.squad.thread() == 0)
    asked = static_cast<uint32_t>(atomicAdd(reinterpret_cast<unsigned long long*>(me.lane.progress), 1ull));
  me.squad.meet();
  return asked;
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

/// All threads of the squad. False where a wait failed: then the team is broken and nothing is posted any more.
template <bool kMultiplies>
__device__ inline bool walk_lane(const WalkLaunch& launch, const Walker& me, WalkShared& shared, uint8_t* pieces) {
  // NOTE: barriers are made and used by one thread, so that nobody waits for them.
  BulkRoom room = make_bulk_room(pieces, shared.here);
  const Squad& squad = me.squad;
  Slice slice{0, 1, squad.thread(), squad.threads()};
  if (me.lane.serial) slice.index = me.worker, slice.count = me.workers;
  const uint32_t stride = me.lane.serial ? 1 : me.workers;
  volatile bool* go = shared.go;
  uint32_t turn = 0;
  uint32_t index = next_step(me, shared, 0, me.lane.serial ? 0 : me.worker);
#pragma unroll 1
  for (; index < me.lane.num_steps; index = next_step(me, shared, stride, index)) {
    StepRecord step = launch.table.steps[me.lane.first_step + index];
    WalkTable table = launch.table;
    StepRecords& records = shared.records[squad.index][turn++ % 2];
    bring_records(table.sources, step.first_source, step.num_sources, records.sources, squad);
    bring_records(table.targets, step.first_target, step.num_targets, records.targets, squad);
    bring_records(table.posts, step.first_post, step.num_posts, records.posts, squad);
    if (slice.thread == 0) go[squad.index] = await_step(launch, me, index, step);
    squad.meet();
    if (!go[squad.index]) return false;
    Patience patience{launch.watch, step.task, me.epoch, slice.thread == 0};
    if (patience.first) patience.span = span_of(launch, step.task);
    run_step<kMultiplies>(table, step, slice, room, patience);
    if (squad.any(patience.over)) return false;
    if (slice.thread == 0) finish_step(launch, me, index, table.posts, step);
  }
  if (me.lane.late) squad.meet();  // all have read the last answer
  return true;
}

/// A late CTA, before it asks for steps, which may wait for any CTA that is no late one: whether those have all begun.
/// NOTE: they come first in the grid, and so begin first; but nobody promises that.
__device__ inline bool all_have_begun(const WalkLaunch& launch, uint32_t others) {
  constexpr uint64_t kPatienceNs = 50'000;
  bool now = false;
  if (threadIdx.x == 0) {
    const uint64_t from = ptx::global_time_ns();
    const auto* begun = static_cast<const volatile uint64_t*>(&launch.counters->begun);
    do {
      now = *begun >= others;
    } while (!now && ptx::global_time_ns() - from < kPatienceNs);
  }
  return __syncthreads_or(now) != 0;
}

/// A CTA that is no late one begins.
__device__ inline void note_begun(const WalkLaunch& launch) {
  if (launch.table.late_ctas == 0 || threadIdx.x != 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&launch.counters->begun), 1ull);
}

/// CTA number `cta` of walking_ctas: heavy lanes first, then the light ones, a warp each; then the late CTAs, each in
/// all late lanes. `pieces`: kBulkBytes of shared memory, or none.
template <bool kMultiplies>
__device__ inline void walk_roles(const WalkLaunch& launch, uint32_t cta, WalkShared& shared,
                                  uint8_t* pieces = nullptr) {
  const WalkTable& table = launch.table;
  const uint32_t walkers = walking_ctas(table, blockDim.x);
  const bool late = cta >= walkers;
  if (late || cta < table.ctas) {
    const uint32_t lanes = late ? table.num_lanes - table.light_lanes : 1;
#pragma unroll 1
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      if (late && !table.lanes[lane].late) continue;
      const Walker me = late ? place_late(launch, cta - walkers, lane) : place_walker(launch, cta);
      const bool good = walk_lane<kMultiplies>(launch, me, shared, late ? nullptr : pieces);
      // NOTE: squads of one lane may be one squad of the next: all go on together, or none does.
      if (late && __syncthreads_and(good) == 0) return;
    }
    return;
  }
  const uint32_t light = (cta - table.ctas) * (blockDim.x / 32) + threadIdx.x / 32;
  if (threadIdx.x % 32 != 0 || light >= table.light_lanes) return;
  walk_light_lane(launch, table.num_lanes - table.light_lanes + light);
}

/// The last CTA to leave a call that has late ones puts back what counts one call only.
__device__ inline void clear_late(const WalkLaunch& launch) {
#pragma unroll 1
  for (uint32_t lane = 0; lane < launch.table.num_lanes; ++lane) {
    if (launch.table.lanes[lane].late) launch.table.lanes[lane].progress[0] = 0;
  }
  launch.counters->begun = 0;
}

/// All threads of every CTA of the grid, last: when all have ended, the call is over.
/// NOTE: a second kernel for this would hold up other ranks' kernels in a queue of the device that they share.
__device__ inline void leave_call(const WalkLaunch& launch) {
  if (launch.counters == nullptr) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  auto* calls = reinterpret_cast<unsigned long long*>(&launch.counters->calls);
  const uint64_t part = blockIdx.x == 0 ? kWholeCall - (gridDim.x - 1) : 1;
  if (launch.table.late_ctas == 0) {
    atomicAdd(calls, part);
    return;
  }
  __threadfence();
  if ((atomicAdd(calls, part) + part) % kWholeCall == 0) clear_late(launch);
}

}  // namespace tilewire::cuda
