// The persistent GEMM kernel: a scheduler warp, a loading warp, two consumer warpgroups and their two storing warps
// walk a table of tiles. Instantiated by gemm_bodies.cuh.
#pragma once

#include "backends/cuda/gemm_epilogue.cuh"
#include "backends/cuda/gemm_producer.cuh"
#include "backends/cuda/gemm_scheduler.cuh"
#include "backends/cuda/walk.cuh"
#include "backends/cuda/wgmma.cuh"

namespace tilewire::cuda {

/// Tell the producers that fill a stage that this warp is done with it.
template <class Body>
__device__ inline void release_stage(const Cta<Body>& cta, int stage) {
  const uint32_t lane = threadIdx.x % 32;
  if (cta.size == 1) {
    if (lane == 0) ptx::barrier_arrive(&cta.control.empty[stage]);
  } else if ((cta.a_ctas | cta.b_ctas) >> lane & 1) {
    ptx::barrier_arrive_at(&cta.control.empty[stage], lane);
  }
}

/// One step of K for one consumer warpgroup; `a` and `b` describe its part of stage 0.
template <class Body>
__device__ inline void multiply_step(float (&sums)[Body::kBlocksM][Body::kGroupN / 2], uint64_t a, uint64_t b,
                                     int stage, bool add) {
  a += stage * (Body::kStageBytes >> 4);
  b += stage * (Body::kStageBytes >> 4);
  constexpr int kAdvanceB = Body::kNMajor ? 16 * 128 : 32;  // bytes for 16 elements of K
  ptx::matrix_fence();
#pragma unroll
  for (int k = 0; k < kTileK / 16; ++k) {
#pragma unroll
    for (int m = 0; m < Body::kBlocksM; ++m) {
      ptx::multiply<typename Body::In, Body::kNMajor>(sums[m], a + ((m * 64 * 128 + k * 32) >> 4),
                                                      b + (k * kAdvanceB >> 4), add || k > 0);
    }
  }
  ptx::matrix_commit();
}

/// One step of K; the stage of the step before goes back when this one's work is on its way.
template <class Body>
__device__ inline void take_step(const Cta<Body>& cta, float (&sums)[Body::kBlocksM][Body::kGroupN / 2], uint64_t a,
                                 uint64_t b, int step, Ring<Body::kStages>& stage, int& previous) {
  ptx::barrier_wait(&cta.control.full[stage.index], stage.phase);
  multiply_step<Body>(sums, a, b, stage.index, step > 0);
  if (step > 0) {
    ptx::matrix_wait<1>();
    release_stage(cta, previous);
  }
  previous = stage.index;
  stage.next();
}

/// The first steps of a tile, and between them the results of the tile before, which leave a chunk after every few
/// steps. `kLate`: their other parts come now. Returns how many steps were taken. NOTE: two copies of the loop, so that
/// the one without sums stays short: what it jumped over would be missing in the instruction cache.
template <bool kLate, class Body>
__device__ inline int take_steps(const Cta<Body>& cta, float (&sums)[Body::kBlocksM][Body::kGroupN / 2], uint64_t a,
                                 uint64_t b, int steps, Ring<Body::kStages>& stage, int& previous,
                                 Pending<Body>& pending, int group, Ring<Body::kBuffers>& buffer) {
  const Slot& before = cta.control.slots[pending.slot];
  const int interval = steps_per_chunk<Body>(before, steps);
  const auto release = [&](int index) { release_stage(cta, index); };
  int step = 0;
#pragma unroll
  for (int chunk = 0; chunk < Body::kChunks; ++chunk) {
    const int end = min(steps, step + interval);
#pragma unroll 1
    for (; step < end; ++step) take_step(cta, sums, a, b, step, stage, previous);
    uint32_t* packed = pending.packed[chunk / Body::kChunksPerBlock] + chunk % Body::kChunksPerBlock * 16;
    if constexpr (kLate) add_late_parts(cta, before.tile, group, packed, stage, release);
    send_pending(cta, pending, group, chunk, buffer);
  }
  return step;
}

/// The sum over a tile's range of K.
template <class Body>
__device__ inline void multiply_tile(const Cta<Body>& cta, float (&sums)[Body::kBlocksM][Body::kGroupN / 2], uint64_t a,
                                     uint64_t b, const Ring<kSlots>& slot, Ring<Body::kStages>& stage,
                                     Pending<Body>& pending, int group, Ring<Body::kBuffers>& buffer) {
  const int steps = cta.control.slots[slot.index].tile.k_steps;
  int previous = 0;
  int step = 0;
  if constexpr (Body::kDefer) {
    if (sums_late(cta, pending)) {
      step = take_steps<true>(cta, sums, a, b, steps, stage, previous, pending, group, buffer);
    } else if (pending.slot >= 0) {
      step = take_steps<false>(cta, sums, a, b, steps, stage, previous, pending, group, buffer);
    }
  }
#pragma unroll 1
  for (; step < steps; ++step) take_step(cta, sums, a, b, step, stage, previous);
  ptx::matrix_wait<0>();
#pragma unroll
  for (int m = 0; m < Body::kBlocksM; ++m) ptx::pin(sums[m]);
  release_stage(cta, previous);
}

/// A consumer warpgroup: multiplies its part of each tile and sends the results on.
template <class Body>
__device__ void consume_tiles(const Cta<Body>& cta, int group) {
  Control<Body>& control = cta.control;
  const uint8_t* part_a = cta.stages + (Body::kSplitN ? 0 : group * Body::kGroupM * 128);
  const uint8_t* part_b = cta.stages + Body::kBytesA + (Body::kSplitN ? group * Body::kGroupN * 128 : 0);
  const uint64_t a = ptx::matrix_descriptor(part_a, 16);
  const uint64_t b = ptx::matrix_descriptor(part_b, Body::kNMajor ? kTileK * 128 : 16);
  Ring<Body::kStages> stage;
  Ring<kSlots> slot;
  Ring<Body::kBuffers> buffer;
  Pending<Body> pending;
  for (;;) {
    ptx::barrier_wait(&control.record_full[slot.index], slot.phase);
    const Slot& task = control.slots[slot.index];
    const bool end = task.tile.k_steps == 0;
    // A tile that waits may wait for what this CTA has yet to post: results linger only when nothing holds it up.
    if (pending.slot >= 0 && !sums_late(cta, pending)) {
      const bool goes = !end && ptx::barrier_test(&control.going[slot.index], slot.phase);
      if (!ptx::all_of_group(goes, 1 + group)) {
#pragma unroll
        for (int chunk = 0; chunk < Body::kChunks; ++chunk) send_pending(cta, pending, group, chunk, buffer);
        pending.slot = -1;
      }
    }
    if (end) break;
    float sums[Body::kBlocksM][Body::kGroupN / 2];
    multiply_tile(cta, sums, a, b, slot, stage, pending, group, buffer);
    if constexpr (Body::kDefer) {
      const auto release = [&](int index) { release_stage(cta, index); };
      if (task.tile.num_parts > 0 && task.late == 0) add_parts(cta, task.tile, group, sums, stage, release);
    }
    add_tile_bias<Body>(task.tile, group, sums);
    if (Body::kDefer && !(task.tile.flags & kOutputFp32)) {
#pragma unroll
      for (int m = 0; m < Body::kBlocksM; ++m) pack_sums<typename Body::In>(pending.packed[m], sums[m]);
      pending.slot = slot.index;
    } else {
      send_now(cta, task.tile, group, sums, buffer);
      ptx::barrier_arrive(&control.record_empty[slot.index]);
      pending = {};
    }
    slot.next();
  }
}

/// The compute role of a CTA: 3 warpgroups of 4 warps.
template <class Body>
__device__ inline void compute_role(const GemmLaunch& launch, uint8_t* shared) {
  static_assert(sizeof(Control<Body>) <= kControlBytes);
  const Cta<Body> cta = make_cta<Body>(launch, shared);
  TileRecord first{};
  if (threadIdx.x == 0) first = launch.table.tiles[blockIdx.x];
  if (threadIdx.x == 0) init_control(cta);
  for (uint32_t map = threadIdx.x; map < launch.table.num_maps; map += kThreads) {
    ptx::fence_tensor_map(&launch.table.maps[map]);
    ptx::prefetch_tensor_map(&launch.table.maps[map]);
  }
  __syncthreads();
  if (cta.size > 1) ptx::cluster_sync();
  const int group = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 128, 0));
  if (group == 0) {
    ptx::give_registers<56>();
    const int warp = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 32, 0));
    if (warp == 0 && threadIdx.x == 0) load_tiles(cta, first);
    if (warp == 1) schedule_tiles(cta);
    if (warp >= 2) store_tiles(cta, warp - 2);
  } else {
    ptx::take_registers<224>();
    consume_tiles(cta, group - 1);
  }
  __syncwarp();
  if (cta.size > 1) ptx::cluster_sync();  // a partner may still arrive on barriers here
}

/// CTAs of one launch by role: those that compute, then those that walk.
template <class Body>
__global__ void __launch_bounds__(kThreads, 1) gemm_tiles_kernel(const __grid_constant__ GemmLaunch launch) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t walker = blockIdx.x - launch.ctas;
  if (blockIdx.x < launch.ctas) {
    compute_role<Body>(launch, shared);
  } else if (walker < walking_ctas(launch.walk.table, kThreads)) {
    walk_roles<false>(launch.walk, walker, *reinterpret_cast<bool*>(shared));
  }
  leave_call(launch.walk.counters);
}

}  // namespace tilewire::cuda
