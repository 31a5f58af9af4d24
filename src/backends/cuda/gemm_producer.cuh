// The warps that feed a GEMM CTA: the scheduler brings tasks, the loading warp brings tiles of A and B.
// Used by gemm_tiles.cuh.
#pragma once

#include "backends/cuda/gemm_sum.cuh"
#include "backends/cuda/signal_device.cuh"
#include "backends/cuda/spans.cuh"

namespace tilewire::cuda {

/// Index of the next task of this CTA. With a counter, every CTA asks until one answer is past the end.
template <class Body>
__device__ inline uint32_t next_task(const Cta<Body>& cta, uint32_t turn) {
  const GemmLaunch& launch = cta.launch;
  if (launch.counter == nullptr) return blockIdx.x + turn * launch.ctas;
  uint32_t index = 0;
  if (threadIdx.x % 32 == 0) index = atomicAdd(&launch.counter[0], 1u);
  return __shfl_sync(~0u, index, 0);
}

/// The last CTA to leave puts the counter back to zero for the next call.
template <class Body>
__device__ inline void leave_counter(const Cta<Body>& cta) {
  uint32_t* counter = cta.launch.counter;
  if (counter == nullptr || threadIdx.x % 32 != 0) return;
  __threadfence();
  if (atomicAdd(&counter[1], 1u) + 1 != cta.launch.ctas) return;
  atomicExch(&counter[0], 0u);
  atomicExch(&counter[1], 0u);
}

/// Bring task `index` into a slot, by one warp. Past the end, a record without steps.
template <class Body>
__device__ inline void fetch_task(const Cta<Body>& cta, uint32_t index, bool end, Slot& slot, uint64_t* free_barrier,
                                  uint32_t free_phase) {
  const GemmTable& table = cta.launch.table;
  const int lane = static_cast<int>(threadIdx.x % 32);
  int4 part{};
  int4 write[2]{};
  int num_writes = 0;
  if (!end) {
    if (lane < 4) part = __ldg(reinterpret_cast<const int4*>(&table.tiles[index]) + lane);
    num_writes = table.tiles[index].num_writes;
    if (lane < num_writes) {
      const int4* from = reinterpret_cast<const int4*>(&table.writes[table.tiles[index].first_write + lane]);
      write[0] = __ldg(from);
      write[1] = __ldg(from + 1);
    }
  }
  ptx::barrier_wait(free_barrier, free_phase);
  if (lane < 4) reinterpret_cast<int4*>(&slot.tile)[lane] = part;
  if (lane < num_writes) {
    reinterpret_cast<int4*>(&slot.writes[lane])[0] = write[0];
    reinterpret_cast<int4*>(&slot.writes[lane])[1] = write[1];
  }
}

/// The scheduler warp: brings tasks to shared memory ahead of their use.
template <class Body>
__device__ void schedule_tiles(const Cta<Body>& cta) {
  Control<Body>& control = cta.control;
  Ring<kSlots> slot;
  for (uint32_t turn = 0;; ++turn) {
    const uint32_t index = next_task(cta, turn);
    const bool end = index >= cta.launch.table.num_tiles;
    fetch_task(cta, index, end, control.slots[slot.index], &control.record_empty[slot.index], slot.phase ^ 1);
    ptx::barrier_arrive(&control.record_full[slot.index]);
    if (end) break;
    slot.next();
  }
  leave_counter(cta);
}

/// Load a box, or this CTA's share of the boxes that several CTAs use: each then goes to all of them.
__device__ inline void load_box(void* to, const CUtensorMap* map, uint64_t* full, int x, int y, uint32_t ctas,
                                bool mine) {
  if (__popc(ctas) == 1) {
    ptx::tensor_load(to, map, full, x, y);
  } else if (mine) {
    ptx::tensor_load_shared(to, map, full, x, y, static_cast<uint16_t>(ctas));
  }
}

/// Load a step of K of A.
template <class Body>
__device__ inline void load_a(const Cta<Body>& cta, const TileRecord& tile, int k, int stage) {
  uint8_t* to = cta.stages + stage * Body::kStageBytes;
  const CUtensorMap* map = &cta.launch.table.maps[tile.a_map];
  const int turn = static_cast<int>(cta.rank & 1);
#pragma unroll
  for (int i = 0; i < Body::kBoxesA; ++i) {
    void* box = to + i * (Body::kBytesA / Body::kBoxesA);
    const int row = tile.a_row + i * (Body::kTileM / Body::kBoxesA);
    load_box(box, map, &cta.control.full[stage], k, row, cta.a_ctas, i % 2 == turn);
  }
}

/// And of B.
template <class Body>
__device__ inline void load_b(const Cta<Body>& cta, const TileRecord& tile, int k, int stage) {
  uint8_t* to = cta.stages + stage * Body::kStageBytes + Body::kBytesA;
  const CUtensorMap* map = &cta.launch.table.maps[tile.b_map];
  const int turn = static_cast<int>(cta.launch.share == Share::both ? cta.rank / 2 : cta.rank);
#pragma unroll
  for (int i = 0; i < Body::kBoxesB; ++i) {
    void* box = to + i * (Body::kBytesB / Body::kBoxesB);
    const int col = tile.b_col + i * (Body::kTileN / Body::kBoxesB);
    load_box(box, map, &cta.control.full[stage], Body::kNMajor ? col : k, Body::kNMajor ? k : col, cta.b_ctas,
             i % 2 == turn);
  }
}

/// While a task's signals are missing: load those of its operands that nobody writes during a call into stages that are
/// free. Returns in how many.
template <class Body>
__device__ inline int load_early(const Cta<Body>& cta, const TileRecord& tile, Ring<Body::kStages> stage,
                                 uint64_t epoch) {
  if ((tile.flags & (kAStands | kBStands)) == 0) return 0;
  const WaitRecord* waits = cta.launch.table.waits + tile.first_wait;
  const int most = min(tile.k_steps, Body::kStages);
  int count = 0;
  for (; count < most && !signals_are_there(waits, tile.num_waits, epoch); ++count) {
    if (!ptx::barrier_test(&cta.control.empty[stage.index], stage.phase ^ 1)) break;
    ptx::barrier_arrive_expect(&cta.control.full[stage.index], Body::kStageBytes);
    const int k = tile.k_begin + count * kTileK;
    if (tile.flags & kAStands) load_a(cta, tile, k, stage.index);
    if (tile.flags & kBStands) load_b(cta, tile, k, stage.index);
    stage.next();
  }
  return count;
}

/// Load one step of K, or what of it load_early has left.
template <class Body>
__device__ inline void load_stage(const Cta<Body>& cta, const TileRecord& tile, int k, int stage, bool early) {
  if (!early) ptx::barrier_arrive_expect(&cta.control.full[stage], Body::kStageBytes);
  if (!early || !(tile.flags & kAStands)) load_a(cta, tile, k, stage);
  if (!early || !(tile.flags & kBStands)) load_b(cta, tile, k, stage);
}

/// What is posted when the other parts of a tile's sum are there.
__device__ inline const WaitRecord* part_waits(const GemmLaunch& launch, const TileRecord& tile) {
  return launch.table.waits + tile.first_wait + tile.num_waits;
}

/// Wait until the other parts of a tile's sum are there. False if the team leaves.
__device__ inline bool wait_for_parts(const GemmLaunch& launch, const TileRecord& tile, uint64_t epoch) {
  const WaitRecord* waits = part_waits(launch, tile);
  const uint32_t task = launch.table.parts[tile.first_part].task;
  return wait_signals(waits, tile.num_part_waits, epoch, launch.walk.watch, task);
}

/// Whether the task in a slot is here, and none of its waits would hold it up. Looks once.
template <class Body>
__device__ inline bool can_go(const Cta<Body>& cta, const Ring<kSlots>& slot, uint64_t epoch) {
  if (!ptx::barrier_test(&cta.control.record_full[slot.index], slot.phase)) return false;
  const TileRecord& tile = cta.control.slots[slot.index].tile;
  if (tile.k_steps == 0) return false;
  return signals_are_there(cta.launch.table.waits + tile.first_wait, tile.num_waits, epoch);
}

/// Tell the consumers of the whole cluster that this CTA's loads of a task wait for nobody, nor do those before.
template <class Body>
__device__ inline void announce(const Cta<Body>& cta, int slot) {
  if (cta.size == 1) return ptx::barrier_arrive(&cta.control.going[slot]);
  for (uint32_t other = 0; other < cta.size; ++other) ptx::barrier_arrive_at(&cta.control.going[slot], other);
}

/// The loading warp, one lane of it, given the CTA's first tile of a fixed order: waits for the task's signals, then
/// keeps the ring of stages full. What is waited for at the end of a tile is looked at in the middle, when there is
/// time.
template <class Body>
__device__ void load_tiles(const Cta<Body>& cta, TileRecord tile) {
  constexpr int kStepsPerLook = 8;
  Control<Body>& control = cta.control;
  const GemmLaunch& launch = cta.launch;
  const uint64_t epoch = launch.walk.counters != nullptr ? launch.walk.counters->epoch : 0;
  Ring<Body::kStages> stage;
  Ring<kSlots> slot;
  // Abandoned tiles still go through the motions: the partners in a cluster need this CTA's loads.
  bool abandoned = false;
  bool goes = false;  // the task in the slot, and that is announced
  int early = 0;      // stages of the task that are loaded in part
  // Of a fixed order, the first record is given: loads start before the scheduler has all of the task.
  for (bool ahead = launch.counter == nullptr && tile.num_waits == 0;; ahead = false) {
    if (!ahead) {
      ptx::barrier_wait(&control.record_full[slot.index], slot.phase);
      tile = control.slots[slot.index].tile;
      if (tile.k_steps == 0) break;
      note_low(launch.walk, control.slots[slot.index].taken);
      const WaitRecord* waits = launch.table.waits + tile.first_wait;
      early = goes ? 0 : load_early(cta, tile, stage, epoch);
      abandoned = abandoned || (!goes && !wait_signals(waits, tile.num_waits, epoch, launch.walk.watch, tile.task));
      control.slots[slot.index].abandoned = abandoned ? 1 : 0;
    }
    note_low(launch.walk, control.slots[slot.index].start);
    ptx::barrier_arrive(&control.decided[slot.index]);
    if (!goes) announce(cta, slot.index);
    Ring<kSlots> next = slot;
    next.next();
    goes = false;
    bool parts = false;  // the other parts of the tile's sum are there
    for (int step = 0; step < tile.k_steps; ++step) {
      // NOTE: consumers may have given back a stage that was loaded early.
      if (step >= early) ptx::barrier_wait(&control.empty[stage.index], stage.phase ^ 1);
      load_stage(cta, tile, tile.k_begin + step * kTileK, stage.index, step < early);
      stage.next();
      if (Body::kDefer && tile.num_parts > 0) prefetch_parts(cta, tile, step);
      if (step % kStepsPerLook != kStepsPerLook - 1) continue;
      if (!goes) goes = can_go(cta, next, epoch);
      if (Body::kDefer && tile.num_parts > 0 && !parts) {
        parts = signals_are_there(part_waits(launch, tile), tile.num_part_waits, epoch);
      }
    }
    if (Body::kDefer && tile.num_parts > 0) {
      note_low(launch.walk, control.slots[slot.index].parts_taken);
      abandoned = abandoned || (!parts && !wait_for_parts(launch, tile, epoch));
      note_low(launch.walk, control.slots[slot.index].parts_start);
      control.slots[slot.index].abandoned = abandoned ? 1 : 0;
      if (goes) announce(cta, next.index);
      load_parts(cta, tile, stage);
    } else if (goes) {
      announce(cta, next.index);
    }
    if (ahead) ptx::barrier_wait(&control.record_full[slot.index], slot.phase);
    ptx::barrier_arrive(&control.record_empty[slot.index]);
    slot.next();
  }
}

}  // namespace tilewire::cuda
