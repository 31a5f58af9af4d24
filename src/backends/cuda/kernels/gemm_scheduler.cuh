// The scheduler warp of a GEMM CTA: fetches tasks to shared memory, ahead of their use.
// Used by gemm_tiles.cuh.
#pragma once

#include "backends/cuda/kernels/gemm_sum.cuh"

namespace tilewire::cuda {

/// Index of the next task of this CTA. With a counter, every CTA asks until its answer is past the end.
template <class Body>
__device__ inline uint32_t next_task(const Cta<Body>& cta, uint32_t turn) {
  const GemmLaunch& launch = cta.launch;
  if (launch.counter == nullptr) return cta.index + turn * launch.ctas;
  uint32_t index = 0;
  if (threadIdx.x % 32 == 0) index = atomicAdd(&launch.counter[0], 1u);
  return __shfl_sync(~0u, index, 0);
}

/// The last CTA to end sets the counter back to zero for the next call.
template <class Body>
__device__ inline void leave_counter(const Cta<Body>& cta) {
  uint32_t* counter = cta.launch.counter;
  if (counter == nullptr || threadIdx.x % 32 != 0) return;
  __threadfence();
  if (atomicAdd(&counter[1], 1u) + 1 != cta.launch.ctas) return;
  atomicExch(&counter[0], 0u);
  atomicExch(&counter[1], 0u);
}

/// One warp: fetch a task's writes, with real addresses (`copy`: copy_of_call), and its posts to the slot, and prefetch
/// its epilogue.
__device__ inline void fetch_writes(const GemmTable& table, const Bases& bases, uint64_t copy, TaskSlot& task) {
  const int4* from = reinterpret_cast<const int4*>(table.writes + task.tile.first_write);
  int4* to = reinterpret_cast<int4*>(task.writes);
  const uint32_t words = task.tile.num_writes * (sizeof(WriteRecord) / sizeof(int4));
#pragma unroll 1
  for (uint32_t i = threadIdx.x % 32; i < words; i += 32) {
    int4 word = __ldg(from + i);
    static_assert(offsetof(WriteRecord, to) == 0 && sizeof(WriteRecord) == 2 * sizeof(int4));
    if (i % 2 == 0) {
      const uint64_t relative = uint64_t{static_cast<uint32_t>(word.y)} << 32 | static_cast<uint32_t>(word.x);
      const uint64_t address = resolve(bases, relative, copy);
      word.x = static_cast<int>(address);
      word.y = static_cast<int>(address >> 32);
    }
    to[i] = word;
  }
  if (threadIdx.x % 32 < task.tile.num_steps)
    ptx::prefetch_line(table.epilogue + task.tile.first_step + threadIdx.x % 32);
  const uint32_t posts = min(uint32_t{task.tile.num_posts}, kSlotPosts);
#pragma unroll 1
  for (uint32_t i = threadIdx.x % 32; i < posts; i += 32) task.posts[i] = table.posts[task.tile.first_post + i];
}

/// One warp: fetch task `index` to a slot; past the last task, a record with k_steps = 0. Returns whether it is past.
template <class Body>
__device__ inline bool fetch_tile(const Cta<Body>& cta, uint32_t index, TaskSlot& task, uint64_t* free,
                                  uint32_t phase) {
  const GemmTable& table = cta.launch.table;
  const bool end = index >= table.num_tiles;
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kWords = sizeof(TileRecord) / sizeof(int4);
  int4 word{};
  if (!end && lane < kWords) word = __ldg(reinterpret_cast<const int4*>(&table.tiles[index]) + lane);
  const bool late = !end && comes_late(cta, index);
  if (free != nullptr) ptx::barrier_wait(free, phase);
  if (lane < kWords) reinterpret_cast<int4*>(&task.tile)[lane] = word;
  if (lane == 0) task.late = late ? 1 : 0;
  return end;
}

/// Fetch a CTA's first task, before the CTA's roles begin. Returns whether it has none.
template <class Body>
__device__ inline bool fetch_first(const Cta<Body>& cta) {
  return fetch_tile(cta, next_task(cta, 0), cta.control.slots[0], nullptr, 0);
}

/// The scheduler warp: fetches tasks ahead of their use. `end`: the CTA has no first task.
template <class Body>
__device__ void schedule_tiles(const Cta<Body>& cta, bool end) {
  Control<Body>& control = cta.control;
  Ring<kSlots> slot;
  const uint64_t copy = copy_of_call(cta.launch.workers);
  for (uint32_t turn = 0;;) {
    ptx::barrier_arrive(&control.record_full[slot.index]);
    if (end) break;
    __syncwarp();
    fetch_writes(cta.launch.table, cta.launch.workers.bases, copy, control.slots[slot.index]);
    ptx::barrier_arrive(&control.to_store[slot.index]);
    slot.next();
    end = fetch_tile(cta, next_task(cta, ++turn), control.slots[slot.index], &control.record_empty[slot.index],
                     slot.phase ^ 1);
  }
  leave_counter(cta);
}

}  // namespace tilewire::cuda
