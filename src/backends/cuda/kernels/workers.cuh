// Worker CTAs: they execute the ops of lanes, i.e. wait, move or sum or multiply, post. If lanes have `warpgroups`, a
// CTA has whole warpgroups of threads. Included by the kernels that have worker CTAs, and by sum_units.cuh.
#pragma once

#include "backends/cuda/kernels/ops.cuh"
#include "backends/cuda/kernels/sync_lanes.cuh"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

struct OpRecords {
  SourceRecord sources[kRecordsAtHand];
  TargetRecord targets[kRecordsAtHand];
  PostRecord posts[kRecordsAtHand];
};

/// Shared memory of a worker CTA.
struct WorkerShared {
  bool go[kMostWarpgroups];
  uint32_t asked[kMostWarpgroups];               // next op of a helped lane
  OpRecords records[kMostWarpgroups][2];         // of an op, and of the op before, which is being posted
  uint64_t here[kMostWarpgroups * kBulkPieces];  // BulkRoom::here
};

/// One warpgroup's place in a lane.
struct Worker {
  LaneRecord lane{};
  uint32_t worker = 0;
  uint32_t workers = 1;
  uint64_t epoch = 0;
  uint64_t copy = 0;  ///< copy_of_call
  Warpgroup warpgroup{};

  [[nodiscard]] __device__ bool shares() const { return lane.serial && lane.ctas > 1; }
};

__device__ inline Worker place_worker(const WorkerLaunch& launch, uint32_t cta) {
  uint32_t index = 0;
  while (cta >= launch.table.lanes[index].ctas) cta -= launch.table.lanes[index++].ctas;
  const LaneRecord& lane = launch.table.lanes[index];
  Warpgroup warpgroup;
  if (lane.warpgroups) warpgroup = {threadIdx.x / kWarpgroupThreads, blockDim.x / kWarpgroupThreads};
  return {lane,
          cta * warpgroup.count + warpgroup.index,
          lane.ctas * warpgroup.count,
          calls_before(launch),
          copy_of_call(launch),
          warpgroup};
}

/// The first thread, before an op of a shared lane: wait until the op before is posted. False if the team breaks.
__device__ inline bool await_turn(const WorkerLaunch& launch, const Worker& me, uint32_t index, uint32_t task) {
  if (!me.shares() || index == 0) return true;
  const WaitRecord turn{me.lane.progress + 1, index, 0};
  return wait_signal(turn, me.epoch, launch.watch, task, kLaneTurn);
}

/// A warpgroup of helper CTA `cta` in helped lane `index`.
__device__ inline Worker place_helper(const WorkerLaunch& launch, uint32_t cta, uint32_t index) {
  const LaneRecord& lane = launch.table.lanes[index];
  Warpgroup warpgroup;
  if (lane.warpgroups) warpgroup = {threadIdx.x / kWarpgroupThreads, blockDim.x / kWarpgroupThreads};
  return {
      lane,     (lane.ctas + cta) * warpgroup.count + warpgroup.index, 1, calls_before(launch), copy_of_call(launch),
      warpgroup};
}

/// The index of the warpgroup's first op, or of the op after `index`.
__device__ inline uint32_t next_step(const Worker& me, WorkerShared& shared, uint32_t stride, uint32_t index) {
  if (!me.lane.helped) return index + stride;
  volatile uint32_t& asked = shared.asked[me.warpgroup.index];
  if (me.warpgroup.thread() == 0)
    asked = static_cast<uint32_t>(atomicAdd(reinterpret_cast<unsigned long long*>(me.lane.progress), 1ull));
  me.warpgroup.meet();
  return asked;
}

/// Copy records to shared memory, if they fit: then `from` points there, and `first` is 0. The first member of each is
/// an address and is resolved.
template <typename Record>
__device__ inline void fetch_records(const Record*& from, uint32_t& first, uint32_t count, Record* to,
                                     const Bases& bases, const Worker& me) {
  if (count > kRecordsAtHand) return;
  constexpr uint32_t kWords = sizeof(Record) / sizeof(uint64_t);
  static_assert(sizeof(Record) % sizeof(uint64_t) == 0);
  const auto* words = reinterpret_cast<const uint64_t*>(from + first);
#pragma unroll 1
  for (uint32_t i = me.warpgroup.thread(); i < count * kWords; i += me.warpgroup.threads())
    reinterpret_cast<uint64_t*>(to)[i] = i % kWords == 0 ? resolve(bases, words[i], me.copy) : words[i];
  from = to;
  first = 0;
}

/// The first thread, before an op: wait for its turn and its signals. False if the team breaks. Of CTAs that share an
/// op, the first one records the times.
__device__ inline bool await_op(const WorkerLaunch& launch, const Worker& me, uint32_t index, const OpRecord& step) {
  if (!await_turn(launch, me, index, step.task)) return false;
  TaskSpan* span = me.shares() && me.worker > 0 ? nullptr : span_of(launch, step.task);
  note_taken(span);
  const bool good =
      wait_signals(launch.table.waits + step.first_wait, step.num_waits, me.epoch, launch.watch, step.task);
  note_start(span, me.shares() ? 0 : me.worker);
  return good;
}

/// The first thread, after an op. Of CTAs that share it, the last one to finish posts; all parts are ordered before the
/// posts. After the lane's last op it resets the lane's counters, which count one call only: no CTA waits for a turn
/// now.
__device__ inline void finish_op(const WorkerLaunch& launch, const Worker& me, uint32_t index, const PostRecord* posts,
                                 const OpRecord& step) {
  if (me.shares()) {
    const uint64_t wanted = uint64_t{index + 1} * me.lane.ctas;
    __threadfence();
    const auto before = atomicAdd(reinterpret_cast<unsigned long long*>(me.lane.progress), 1ull);
    if (before + 1 != wanted) return;
    __threadfence();
  }
  post_op(launch, posts, step);
  if (!me.shares()) return;
  if (index + 1 < me.lane.num_ops) return post_signal({me.lane.progress + 1, 1, false});
  me.lane.progress[0] = 0;
  me.lane.progress[1] = 0;
}

/// Execute a lane, by all threads of the warpgroup. False if a wait failed: the team is broken, nothing more is posted.
template <bool kMultiplies, class More>
__device__ inline bool run_lane(const WorkerLaunch& launch, const Worker& me, WorkerShared& shared, uint8_t* pieces) {
  // NOTE: one thread initialises and uses its mbarriers, so that no thread waits for the initialisation.
  BulkRoom room = make_bulk_room(pieces, shared.here);
  const Warpgroup& warpgroup = me.warpgroup;
  Slice slice{0, 1, warpgroup.thread(), warpgroup.threads()};
  if (me.lane.serial) slice.index = me.worker, slice.count = me.workers;
  const uint32_t stride = me.lane.serial ? 1 : me.workers;
  volatile bool* go = shared.go;
  uint32_t turn = 0;
  uint32_t index = next_step(me, shared, 0, me.lane.serial ? 0 : me.worker);
#pragma unroll 1
  for (; index < me.lane.num_ops; index = next_step(me, shared, stride, index)) {
    OpRecord step = launch.table.ops[me.lane.first_op + index];
    WorkerTable table = launch.table;
    table.bases = &launch.bases;
    OpRecords& records = shared.records[warpgroup.index][turn++ % 2];
    fetch_records(table.sources, step.first_source, step.num_sources, records.sources, launch.bases, me);
    fetch_records(table.targets, step.first_target, step.num_targets, records.targets, launch.bases, me);
    fetch_records(table.posts, step.first_post, step.num_posts, records.posts, launch.bases, me);
    if (slice.thread == 0) go[warpgroup.index] = await_op(launch, me, index, step);
    warpgroup.meet();
    if (!go[warpgroup.index]) return false;
    Patience patience{launch.watch, step.task, me.epoch, slice.thread == 0};
    if (patience.first) patience.span = span_of(launch, step.task);
    run_op<kMultiplies, More>(table, step, slice, warpgroup, room, patience);
    if (warpgroup.any(patience.over)) return false;
    if (slice.thread == 0) finish_op(launch, me, index, table.posts, step);
  }
  if (me.lane.helped) warpgroup.meet();  // all have read `asked`
  return true;
}

/// A helper CTA, before it takes ops, which may wait for any CTA that is no helper: whether all of those have begun.
/// NOTE: they come first in the grid and so begin first, but CUDA does not guarantee it.
__device__ inline bool all_have_begun(const WorkerLaunch& launch, uint32_t others) {
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

/// A CTA that is no helper begins.
__device__ inline void note_begun(const WorkerLaunch& launch) {
  if (launch.table.helper_ctas == 0 || threadIdx.x != 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&launch.counters->begun), 1ull);
}

/// The role of CTA number `cta`: first the CTAs of data lanes, then those of sync-only lanes, one warp each, then the
/// helper CTAs, each for all helped lanes. `pieces`: kBulkBytes of shared memory, or null.
template <bool kMultiplies, class More = NoMoreOps>
__device__ inline void run_worker_roles(const WorkerLaunch& launch, uint32_t cta, WorkerShared& shared,
                                        uint8_t* pieces = nullptr) {
  const WorkerTable& table = launch.table;
  const uint32_t workers = worker_ctas(table, blockDim.x);
  const bool late = cta >= workers;
  if (late || cta < table.ctas) {
    const uint32_t lanes = late ? table.num_lanes - table.sync_lanes : 1;
#pragma unroll 1
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      if (late && !table.lanes[lane].helped) continue;
      const Worker me = late ? place_helper(launch, cta - workers, lane) : place_worker(launch, cta);
      const bool good = run_lane<kMultiplies, More>(launch, me, shared, late ? nullptr : pieces);
      // NOTE: warpgroups of this lane may be parts of one warpgroup in the next lane: all go on, or none.
      if (late && __syncthreads_and(good) == 0) return;
    }
    return;
  }
  run_sync_lanes(launch, cta - table.ctas);
}

/// The last CTA of a call with helper CTAs: reset the counters that count one call only.
__device__ inline void clear_helped(const WorkerLaunch& launch) {
#pragma unroll 1
  for (uint32_t lane = 0; lane < launch.table.num_lanes; ++lane) {
    if (launch.table.lanes[lane].helped) launch.table.lanes[lane].progress[0] = 0;
  }
  launch.counters->begun = 0;
}

/// Add a CTA's part of a call to a counter of calls, which so counts the call when all CTAs of the grid have done so.
__device__ inline uint64_t add_part_of_call(uint64_t* calls) {
  const uint64_t part = blockIdx.x == 0 ? kWholeCall - (gridDim.x - 1) : 1;
  return atomicAdd(reinterpret_cast<unsigned long long*>(calls), part) + part;
}

/// One thread of every CTA of the grid, once: count the call. All threads of the CTA must have read the counters
/// (calls_before, copy_of_call); other CTAs may still read them.
__device__ inline void count_call(const WorkerLaunch& launch) {
  if (launch.counters == nullptr) return;
  if (launch.copied != nullptr) add_part_of_call(launch.copied);
  if (launch.table.helper_ctas == 0) {
    add_part_of_call(&launch.counters->calls);
  } else {
    __threadfence();
    if (add_part_of_call(&launch.counters->calls) % kWholeCall == 0) clear_helped(launch);
  }
}

/// Count a CTA as ended, by all threads of every CTA of the grid, last: the call ends with its last CTA. `counted`:
/// count_call was called earlier, so that its additions, which take turns, are not at the end of the call.
/// NOTE: a second kernel for this would hold up other ranks' kernels in a queue of the device that they share.
__device__ inline void leave_call(const WorkerLaunch& launch, bool counted = false) {
  if (launch.counters == nullptr) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (!counted) count_call(launch);
  if (launch.watch.calls != nullptr) add_part_of_call(&launch.watch.calls->ended);
}

}  // namespace tilewire::cuda
