// The persistent GEMM kernel, which executes a table of tiles: a scheduler warp, a producer warp, two consumer
// warpgroups and their two storing warps. Instantiated by gemm_bodies.cuh.
#pragma once

#include "backends/cuda/kernels/gemm_cluster_split_k.cuh"
#include "backends/cuda/kernels/gemm_epilogue.cuh"
#include "backends/cuda/kernels/gemm_groups.cuh"
#include "backends/cuda/kernels/gemm_multiply.cuh"
#include "backends/cuda/kernels/gemm_producer.cuh"
#include "backends/cuda/kernels/gemm_scheduler.cuh"
#include "backends/cuda/kernels/gemm_store.cuh"
#include "backends/cuda/kernels/workers.cuh"

namespace tilewire::cuda {

/// The first steps of a tile. After every few steps, send one deferred chunk of the tile before. Returns the number of
/// steps taken.
template <class Body>
__device__ __forceinline__ int take_ops(const Cta<Body>& cta, float (&sums)[Body::kBlocksM][Body::kGroupN / 2],
                                        uint64_t a, uint64_t b, int steps, int rows, Ring<Body::kStages>& stage,
                                        int& previous, Deferred<Body>& deferred, int group,
                                        Ring<Body::kBuffers>& buffer) {
  using In = typename Body::In;
  const TaskSlot& before = cta.control.slots[deferred.slot];
  const int interval = steps_per_chunk<Body>(before, steps);
  int step = 0;
#pragma unroll
  for (int chunk = 0; chunk < Body::kChunks; ++chunk) {
    const int end = min(steps, step + interval);
#pragma unroll 1
    for (; step < end; ++step) take_op(cta, sums, a, b, step, rows, stage, previous);
    send_chunk<Body, In>(cta, before.tile, group, chunk, deferred.packed + Body::kChunkWords * chunk, buffer);
  }
  end_deferred(cta, deferred);
  return step;
}

/// The same if the deferred results complete a sum: sum half of a chunk before a step of K and half after it, each
/// about as long as the products of a step. NOTE: one copy of the code serves all chunks (next_chunk). The producer
/// loads the partials before the same steps (load_early_partials).
template <class Body>
__device__ __forceinline__ int take_ops_and_sum(const Cta<Body>& cta, float (&sums)[Body::kBlocksM][Body::kGroupN / 2],
                                                uint64_t a, uint64_t b, int steps, int rows, Ring<Body::kStages>& stage,
                                                int& previous, Deferred<Body>& deferred, int group,
                                                Ring<Body::kBuffers>& buffer) {
  using In = typename Body::In;
  const TaskSlot& before = cta.control.slots[deferred.slot];
  const int interval = steps_per_chunk<Body>(before, steps);
  int step = 0;
  int end = min(steps, steps_before_sum<Body>(before, steps));
#pragma unroll 1
  for (int chunk = 0; chunk < Body::kChunks; ++chunk) {
#pragma unroll 1
    for (; step < end; ++step) take_op(cta, sums, a, b, step, rows, stage, previous);
    if (has_few_partials(before.tile)) {
      send_short_sum(cta, before.tile, group, chunk, deferred.packed, stage, buffer, [&] {
        if (step < steps) take_op(cta, sums, a, b, step++, rows, stage, previous);
      });
    } else {
      send_sum<Body, In, false>(cta, before.tile, group, chunk, deferred.packed, stage, buffer);
    }
    next_chunk(deferred);
    end = min(steps, end + interval);
  }
  end_deferred(cta, deferred);
  return step;
}

/// All steps of a tile. Returns the stage of the last step, whose wgmma are still in flight.
template <class Body>
__device__ __forceinline__ int multiply_tile(const Cta<Body>& cta, float (&sums)[Body::kBlocksM][Body::kGroupN / 2],
                                             uint64_t a, uint64_t b, const TileRecord& tile, Ring<Body::kStages>& stage,
                                             Deferred<Body>& deferred, int group, Ring<Body::kBuffers>& buffer) {
  const int steps = tile.k_steps;
  const int rows = Body::kSwapAb ? rows_made(cta, tile) : 0;
  int previous = 0;
  int step = 0;
  if (Body::kDefer && deferred.slot >= 0) {
    if (Body::kSums && cta.control.slots[deferred.slot].tile.num_partials > 0) {
      step = take_ops_and_sum(cta, sums, a, b, steps, rows, stage, previous, deferred, group, buffer);
    } else {
      step = take_ops(cta, sums, a, b, steps, rows, stage, previous, deferred, group, buffer);
    }
  }
#pragma unroll 1
  for (; step < steps; ++step) take_op(cta, sums, a, b, step, rows, stage, previous);
  return previous;
}

/// Whether the fetched task in a slot loads without waiting. All threads of a warpgroup get the same answer.
template <class Body>
__device__ inline bool is_going(const Cta<Body>& cta, const Ring<kSlots>& slot, int group) {
  return ptx::all_of_group(ptx::barrier_test(&cta.control.going[slot.index], slot.phase), 1 + group);
}

/// The end of a tile that completes no sum: its epilogue, or the activation of its group.
template <class Body>
__device__ __forceinline__ void end_products(const Cta<Body>& cta, const TaskSlot& task, int group,
                                             float (&sums)[Body::kBlocksM][Body::kGroupN / 2]) {
  if constexpr (Body::kGroups) {
    activate<Body>(cta.launch.table.families[task.family].activation, sums);
  } else {
    apply_steps(cta, task.tile, group, sums);
  }
}

/// A consumer warpgroup: multiplies its part of each tile and hands the results to the storing warp.
template <class Body>
__device__ __forceinline__ void consume_tiles(const Cta<Body>& cta, int group) {
  using In = typename Body::In;
  Control<Body>& control = cta.control;
  const uint8_t* part_a = own_lines(cta, group, 0);
  const uint8_t* part_b =
      cta.stages + (Body::kSwapAb ? 0 : Body::kBytesA) + (Body::kSplitN ? group * Body::kGroupN * 128 : 0);
  const uint64_t a = ptx::matrix_descriptor(part_a, 16);
  const uint64_t b = ptx::matrix_descriptor(part_b, Body::kNMajor && !Body::kSwapAb ? kTileK * 128 : 16);
  Ring<Body::kStages> stage;
  Ring<kSlots> slot;
  Ring<Body::kBuffers> buffer;
  Deferred<Body> deferred;
  [[maybe_unused]] uint32_t given = 0;
  ptx::barrier_wait(&control.record_full[slot.index], slot.phase);
  for (;;) {
    const TileRecord& tile = control.slots[slot.index].tile;
    const bool end = tile.k_steps == 0;
    // The next tile may wait for a post of this CTA: results stay deferred only if that tile waits for no signal.
    if (Body::kDefer && deferred.slot >= 0 && !deferred.is_deferred) [[unlikely]] {
      flush_deferred(cta, deferred, group, end, stage, buffer);
    }
    if (end) break;
    float sums[Body::kBlocksM][Body::kGroupN / 2];
    const int last = multiply_tile(cta, sums, a, b, tile, stage, deferred, group, buffer);
    // Look at the next task while the last products are made.
    Ring<kSlots> next = slot;
    next.next();
    ptx::barrier_wait(&control.record_full[next.index], next.phase);
    const bool sum = Body::kSums && tile.num_partials > 0;
    const bool may_defer = !sum && control.slots[next.index].tile.k_steps > 0;
    bool is_deferred = may_defer && is_going(cta, next, group);
    ptx::matrix_wait<0>();
#pragma unroll
    for (int m = 0; m < Body::kBlocksM; ++m) ptx::pin(sums[m]);
    if (!Body::kSplitN) release_stage(cta, last);
    if constexpr (Body::kSplitsK) {
      if (cta.launch.cluster.k > 1 && !join_parts(cta, tile, group, sums, given, stage)) {
        ptx::barrier_arrive(&control.record_empty[slot.index]);
        slot = next;
        continue;
      }
    }
    if (!sum) end_products(cta, control.slots[slot.index], group, sums);
    if (Body::kDefer && (sum || !(tile.flags & kOutputFp32))) {
#pragma unroll
      for (int m = 0; m < Body::kBlocksOut; ++m) pack_sums<In>(deferred.packed + m * Body::kGroupN / 4, sums[m]);
      deferred.slot = slot.index;
      if (may_defer && !is_deferred) is_deferred = is_going(cta, next, group);
      deferred.is_deferred = is_deferred || control.slots[slot.index].late != 0;
    } else {
      send_now(cta, tile, group, sums, buffer);
      ptx::barrier_arrive(&control.record_empty[slot.index]);
    }
    slot = next;
  }
}

/// Make the tensor maps usable for the CTA, by one warp, before its roles begin. NOTE: fences of maps run one after
/// another, two in a microsecond, so maps in device memory are slower than maps in the launch.
__device__ inline void ready_maps(const GemmTable& table) {
#pragma unroll 1
  for (uint32_t map = threadIdx.x % 32; map < table.num_maps; map += 32) {
    if (map >= kMapsAtHand) ptx::fence_tensor_map(map_of(table, map));
    ptx::prefetch_tensor_map(map_of(table, map));
  }
}

/// The role of compute CTA `index`: 3 warpgroups of 4 warps.
template <class Body>
__device__ __forceinline__ void compute_role(const GemmLaunch& launch, uint32_t index, uint8_t* shared) {
  static_assert(sizeof(Control<Body>) <= kControlBytes);
  const Cta<Body> cta = make_cta<Body>(launch, index, shared);
  const int group = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 128, 0));
  const int warp = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 32, 0));
  // In parallel: fetch the first record, prefetch the tensor maps, initialise the mbarriers.
  constexpr int kFirst = 3;  // barriers: the producer may begin,
  constexpr int kBegun = 4;  // and the other warps may begin
  bool none = false;
  [[maybe_unused]] FamilyCursor families;
  [[maybe_unused]] uint64_t epoch = 0;
  if (warp == 1) {
    if constexpr (Body::kGroups) {
      none = fetch_first_of_groups(cta, families, epoch);
    } else {
      none = fetch_first(cta);
    }
  }
  if (warp == 2) ready_maps(launch.table);
  if (threadIdx.x == 96) init_control(cta);
  __syncwarp();
  if (cta.size > 1) ptx::cluster_arrive();
  if (warp == 0) {
    // NOTE: the producer waits here, in its own branch, so that its code is fetched meanwhile.
    ptx::give_registers<56>();
    ptx::cta_meet(kFirst, 128);
    if (cta.size > 1) ptx::cluster_wait();
    if (ptx::elect()) load_tiles(cta);
  } else {
    if (group == 0) ptx::cta_arrive(kFirst, 128);
    ptx::cta_meet(kBegun, kThreads - 32);
    if (cta.size > 1) ptx::cluster_wait();
    if (group == 0) {
      ptx::give_registers<56>();
      if constexpr (Body::kGroups) {
        if (warp == 1) schedule_groups(cta, families, epoch, none);
      } else {
        if (warp == 1) schedule_tiles(cta, none);
      }
      // Warp 3 has nothing to store yet.
      if (warp == 3 && index == 0 && threadIdx.x % 32 == 0) note_call(launch.workers);
      __syncwarp();
      if (warp >= 2) store_tiles(cta, warp - 2);
    } else {
      ptx::take_registers<224>();
      consume_tiles(cta, group - 1);
    }
  }
  __syncwarp();
  if (cta.size > 1) ptx::cluster_meet();  // other CTAs may still arrive on mbarriers of this one
}

/// The CTAs of a launch by role: compute CTAs, and spread among them worker CTAs and placeholder CTAs; then helper
/// CTAs, which start when other CTAs end.
template <class Body>
__global__ void __launch_bounds__(kThreads, 1) gemm_tiles_kernel(const __grid_constant__ GemmLaunch launch) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t computing = spread_before(launch.computing, blockIdx.x);
  if (spread_before(launch.computing, blockIdx.x + 1) > computing) {
    note_begun(launch.workers);
    compute_role<Body>(launch, computing, shared);
  } else {
    const uint32_t workers = worker_ctas(launch.workers.table, kThreads);
    const uint32_t first_helper = max(launch.computing.all, launch.ctas + workers);
    const uint32_t other = blockIdx.x - computing;
    uint32_t worker = spread_before(launch.working, other);
    const bool walks = spread_before(launch.working, other + 1) > worker;
    constexpr int kPieces = (sizeof(WorkerShared) + 127) / 128 * 128;
    static_assert(kPieces + kBulkBytes <= Body::kSharedBytes && kThreads == kMostWarpgroups * kWarpgroupThreads);
    auto& room = *reinterpret_cast<WorkerShared*>(shared);
    if (walks) note_begun(launch.workers);
    if (blockIdx.x >= first_helper) worker = workers + blockIdx.x - first_helper;
    const bool helps = blockIdx.x >= first_helper && worker < workers + launch.workers.table.helper_ctas;
    if (walks || (helps && all_have_begun(launch.workers, launch.ctas + workers)))
      run_worker_roles<false>(launch.workers, worker, room, shared + kPieces);
  }
  leave_call(launch.workers);
}

}  // namespace tilewire::cuda
