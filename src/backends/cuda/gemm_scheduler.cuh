// The warp of a GEMM CTA that brings tasks to shared memory, ahead of their use.
// Used by gemm_tiles.cuh.
#pragma once

#include "backends/cuda/gemm_sum.cuh"

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
  bool late = false;
  if (!end) {
    if (lane < 4) part = __ldg(reinterpret_cast<const int4*>(&table.tiles[index]) + lane);
    num_writes = table.tiles[index].num_writes;
    if (lane < num_writes) {
      const int4* from = reinterpret_cast<const int4*>(&table.writes[table.tiles[index].first_write + lane]);
      write[0] = __ldg(from);
      write[1] = __ldg(from + 1);
    }
    late = comes_late(cta, index);
  }
  ptx::barrier_wait(free_barrier, free_phase);
  if (lane < 4) reinterpret_cast<int4*>(&slot.tile)[lane] = part;
  if (lane < num_writes) {
    reinterpret_cast<int4*>(&slot.writes[lane])[0] = write[0];
    reinterpret_cast<int4*>(&slot.writes[lane])[1] = write[1];
  }
  if (lane == 0) slot.late = late ? 1 : 0;
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

}  // namespace tilewire::cuda
