// The producer warp of a GEMM CTA: loads tiles of A and B, and partials of sums, after their signals.
// Used by gemm_tiles.cuh.
#pragma once

#include <climits>

#include "backends/cuda/kernels/gemm_cluster_split_k.cuh"
#include "backends/cuda/kernels/gemm_loads.cuh"
#include "backends/cuda/kernels/gemm_sum.cuh"
#include "backends/cuda/kernels/signal_device.cuh"
#include "backends/cuda/kernels/spans.cuh"

namespace tilewire::cuda {

/// While a task's signals are missing: load the operands that no task writes during a call into free stages. Returns
/// the number of these stages.
template <class Body>
__device__ inline int load_early(const Cta<Body>& cta, const TileRecord& tile, Fill<Body> fill, uint64_t epoch) {
  if ((tile.flags & (kAStands | kBStands)) == 0) return 0;
  const WaitRecord* waits = cta.launch.table.waits + tile.first_wait;
  uint32_t due = 0;
  while (due < tile.num_waits && waits[due].step == 0) ++due;
  const Operands from = operands_of(cta, tile);
  const int most = min(tile.k_steps, Body::kStages);
  int count = 0;
#pragma unroll 1
  for (; count < most && !signals_are_there(waits, due, epoch); ++count) {
    if (!ptx::barrier_test(&cta.control.empty[fill.stage.index], fill.stage.phase ^ 1)) break;
    ptx::barrier_arrive_expect(&cta.control.full[fill.stage.index], step_bytes(cta, tile));
    if (tile.flags & kAStands) load_a(cta, from, count, fill.stage.index);
    if (tile.flags & kBStands) load_b(cta, from, count, fill.stage.index);
    fill.next();
  }
  return count;
}

/// Load the steps of K before `end`. Of the first `early` steps, load only the operands that load_early has left out.
template <class Body>
__device__ inline void load_steps(const Cta<Body>& cta, const TileRecord& tile, int& step, int end, int early,
                                  Fill<Body>& fill) {
  const Operands from = operands_of(cta, tile);
#pragma unroll 1
  for (; step < min(end, early); ++step) {
    // NOTE: no wait for `empty`: load_early has seen it, and consumers may have released the stage again since then.
    if (!(tile.flags & kAStands)) load_a(cta, from, step, fill.stage.index);
    if (!(tile.flags & kBStands)) load_b(cta, from, step, fill.stage.index);
    fill.next();
  }
#pragma unroll 1
  for (; step < end; ++step) {
    ptx::barrier_wait(&cta.control.empty[fill.index()], fill.phase());
    ptx::barrier_arrive_expect(&cta.control.full[fill.stage.index], step_bytes(cta, tile));
    load_a(cta, from, step, fill.stage.index);
    load_b(cta, from, step, fill.stage.index);
    fill.next();
  }
}

/// Wait for the signals that a tile's loads of `step` need, from wait number `waited` on. Returns the step that needs
/// the next wait. `abandoned`: set if a wait fails, as the team is then broken.
template <class Body>
__device__ inline int pass_waits(const Cta<Body>& cta, const TileRecord& tile, int step, uint64_t epoch, int& waited,
                                 bool& abandoned) {
  const WaitRecord* waits = cta.launch.table.waits + tile.first_wait;
#pragma unroll 1
  for (; waited < tile.num_waits; ++waited) {
    const int needed = static_cast<int>(waits[waited].step);
    if (needed > step) return needed;
    abandoned = abandoned || !wait_signals(waits + waited, 1, epoch, cta.launch.workers.watch, tile.task);
  }
  return INT_MAX;
}

/// The waits for the other partials of a tile's sum.
__device__ inline const WaitRecord* part_waits(const GemmLaunch& launch, const TileRecord& tile) {
  return launch.table.waits + tile.first_wait + tile.num_waits;
}

/// The producer's remaining work for a late sum, whose partials it loads during the next tile.
struct LateSum {
  int slot = -1;       // slot of the tile that completes the sum; -1 = none
  int chunk = 0;       // the next chunk to load
  int step = 0;        // load it before this step of the current tile
  bool there = false;  // all partials have arrived
};

/// Wait for the other partials of a tile's sum. `abandoned`: set if a wait fails.
__device__ inline void wait_for_parts(const GemmLaunch& launch, TaskSlot& task, bool there, uint64_t epoch,
                                      bool& abandoned) {
  const TileRecord& tile = task.tile;
  note_low(launch.workers, task.partials_taken);
  if (!there && !abandoned) {
    const uint32_t sum = launch.table.parts[tile.first_partial].task;
    abandoned = !wait_signals(part_waits(launch, tile), tile.num_partial_waits, epoch, launch.workers.watch, sum);
  }
  note_low(launch.workers, task.parts_start);
  task.abandoned = abandoned ? 1 : 0;
}

/// Load the next chunk of a late sum, at its step among a tile's `steps`. After the last chunk, release the sum's slot.
template <class Body>
__device__ inline void load_early_partials(const Cta<Body>& cta, LateSum& sum, int steps, Fill<Body>& fill,
                                           uint64_t epoch, bool& abandoned) {
  TaskSlot& task = cta.control.slots[sum.slot];
  if (sum.chunk == 0) wait_for_parts(cta.launch, task, sum.there, epoch, abandoned);
  load_partials(cta, task.tile, sum.chunk, fill);
  sum.step = min(steps, sum.step + steps_per_chunk<Body>(task, steps));
  if (++sum.chunk < Body::kChunks) return;
  ptx::barrier_arrive(&cta.control.record_empty[sum.slot]);
  sum.slot = -1;
}

/// Whether the task in a slot is fetched and all of its signals are there. Tests once, without waiting.
template <class Body>
__device__ inline bool can_go(const Cta<Body>& cta, const Ring<kSlots>& slot, uint64_t epoch) {
  if (!ptx::barrier_test(&cta.control.record_full[slot.index], slot.phase)) return false;
  const TileRecord& tile = cta.control.slots[slot.index].tile;
  if (tile.k_steps == 0) return false;
  return signals_are_there(cta.launch.table.waits + tile.first_wait, tile.num_waits, epoch);
}

/// Signal to the consumers of the whole cluster that this CTA's loads of a task, and all loads before, need not wait.
template <class Body>
__device__ inline void announce(const Cta<Body>& cta, int slot) {
  if (cta.size == 1) return ptx::barrier_arrive(&cta.control.going[slot]);
#pragma unroll 1
  for (uint32_t other = 0; other < cta.size; ++other) ptx::barrier_arrive_at(&cta.control.going[slot], other);
}

/// The state of the producer.
template <class Body>
struct Loading {
  Fill<Body> fill;
  uint64_t epoch = 0;
  Ring<kSlots> slot;
  // After a failed wait the tiles are still loaded: the other CTAs of the cluster need this CTA's loads.
  bool abandoned = false;
  bool goes = false;        // the task in the slot need not wait, and announce has said so
  bool parts = false;       // the other partials of its sum are there
  int early = 0;            // stages of the task that load_early has filled
  int waited = 0;           // its waits that are over
  int wait_step = INT_MAX;  // its step of K that needs the next wait
  LateSum sum;              // of the task before
};

/// Begin the task in the slot: wait for the signals that its first steps need.
template <class Body>
__device__ inline void take_tile(const Cta<Body>& cta, const TileRecord& tile, Loading<Body>& my) {
  TaskSlot& task = cta.control.slots[my.slot.index];
  note_low(cta.launch.workers, task.taken);
  my.early = 0;
  my.wait_step = INT_MAX;
  my.waited = 0;
  if (!my.goes && tile.num_waits > 0) [[unlikely]] {
    my.early = load_early(cta, tile, my.fill, my.epoch);
    my.wait_step = pass_waits(cta, tile, max(0, my.early - 1), my.epoch, my.waited, my.abandoned);
  }
  task.abandoned = my.abandoned ? 1 : 0;
}

/// Load all steps of a tile, and between them the remaining partials of the sum before. Test the signals of the next
/// task and of this tile's sum every 8 steps. Returns whether the next task need not wait.
template <class Body>
__device__ inline bool load_tile(const Cta<Body>& cta, const TileRecord& tile, Loading<Body>& my) {
  constexpr int kStepsPerPoll = 8;
  Control<Body>& control = cta.control;
  Ring<kSlots> next = my.slot;
  next.next();
  LateSum& sum = my.sum;
  if (Body::kSums && sum.slot >= 0) {
    sum.step = min(tile.k_steps, steps_before_sum<Body>(control.slots[sum.slot], tile.k_steps));
  }
  bool announced = my.goes || my.wait_step == INT_MAX;
  if (!my.goes && announced) announce(cta, my.slot.index);
  bool next_goes = false;
#pragma unroll 1
  for (int step = 0; step < tile.k_steps || (Body::kSums && sum.slot >= 0);) {
    if (step >= my.wait_step) [[unlikely]] {
      my.wait_step = pass_waits(cta, tile, step, my.epoch, my.waited, my.abandoned);
      control.slots[my.slot.index].abandoned = my.abandoned ? 1 : 0;
      if (!announced && my.wait_step == INT_MAX) announce(cta, my.slot.index);
      announced = announced || my.wait_step == INT_MAX;
    }
    const int look = min(tile.k_steps, step / kStepsPerPoll * kStepsPerPoll + kStepsPerPoll);
    load_steps(cta, tile, step, min(min(look, my.wait_step), Body::kSums && sum.slot >= 0 ? sum.step : look), my.early,
               my.fill);
    if (Body::kSums && sum.slot >= 0 && step == sum.step) [[unlikely]] {
      load_early_partials(cta, sum, tile.k_steps, my.fill, my.epoch, my.abandoned);
    }
    if (step < look) continue;
    if (!next_goes) next_goes = can_go(cta, next, my.epoch);
    if (Body::kSums && tile.num_partials > 0 && !my.parts) {
      my.parts = signals_are_there(part_waits(cta.launch, tile), tile.num_partial_waits, my.epoch);
    }
  }
  return next_goes;
}

/// One lane of the producer warp: waits for a task's signals, then keeps the ring of stages full. The first task is
/// already in its slot.
template <class Body>
__device__ void load_tiles(const Cta<Body>& cta) {
  Control<Body>& control = cta.control;
  const GemmLaunch& launch = cta.launch;
  Loading<Body> my{.fill = Fill<Body>(launch.depth)};
  if (launch.workers.counters != nullptr) my.epoch = calls_before(launch.workers);
  for (;; ptx::barrier_wait(&control.record_full[my.slot.index], my.slot.phase)) {
    TaskSlot& task = control.slots[my.slot.index];
    const TileRecord& tile = task.tile;
    if (tile.k_steps == 0) break;
    take_tile(cta, tile, my);
    note_low(launch.workers, task.start);
    ptx::barrier_arrive(&control.to_store[my.slot.index]);
    my.parts = false;
    const bool next_goes = load_tile(cta, tile, my);
    if (Body::kSplitsK && launch.cluster.k > 1) offer_stages(cta, tile, my.fill);
    const bool sums = Body::kSums && tile.num_partials > 0;
    const bool late = sums && task.late != 0;
    if (sums && !late) wait_for_parts(launch, task, my.parts, my.epoch, my.abandoned);
    const int here = my.slot.index;
    my.slot.next();
    my.goes = next_goes;
    if (next_goes) announce(cta, my.slot.index);
    if (late) {
      my.sum = {here, 0, 0, my.parts};
      continue;
    }
#pragma unroll 1
    for (int chunk = 0; sums && chunk < Body::kChunks; ++chunk) load_partials(cta, tile, chunk, my.fill);
    ptx::barrier_arrive(&control.record_empty[here]);
  }
  // NOTE: other CTAs of the cluster still arrive on this CTA's `empty` mbarriers, so it must not end before them.
  Ring<Body::kStages> stage = my.fill.stage;
  for (int i = 0; cta.size > 1 && i < Body::kStages; ++i, stage.next()) {
    ptx::barrier_wait(&control.empty[stage.index], stage.phase ^ 1);
  }
}

}  // namespace tilewire::cuda
