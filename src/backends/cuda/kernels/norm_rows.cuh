// Norms of rows whose parts the CTAs of a cluster have: each CTA puts its moments in the shared memory of all.
// Included by rows.cu.
#pragma once

#include "backends/cuda/kernels/spread.cuh"
#include "lower/kernel_limits.hpp"

namespace tilewire::cuda {

constexpr int kMostRowWarps = 16;

/// Where the moments of a row come together, in each CTA of its cluster: those of warp w of part p at [p * warps + w].
struct MomentsOfRow {
  uint64_t all_here;  ///< mbarrier: counts their bytes
  float4 moments[kMostRowParts * kMostRowWarps];
};

/// All threads, before the first store in another CTA: prepare the mbarrier. NOTE: a CTA that has a whole row is in no
/// cluster, where st.async is an illegal instruction (seen on H200).
__device__ __forceinline__ void expect_moments(MomentsOfRow& here, int parts) {
  if (parts == 1) return;
  if (threadIdx.x == 0) {
    ptx::barrier_init(&here.all_here, 1);
    ptx::barrier_arrive_expect(&here.all_here, static_cast<uint32_t>(parts) * (blockDim.x / 32) * sizeof(float4));
    ptx::barrier_init_fence();
  }
  __syncwarp();
  ptx::cluster_arrive();
}

/// All threads: send the moments of each warp's columns to all CTAs of the row, and add those of all. False if a thread
/// of one of these CTAs is not `good`.
__device__ __forceinline__ bool exchange_moments(MomentsOfRow& here, int part, int parts, bool layer, bool good,
                                                 Spread& of) {
  constexpr uint32_t kAll = 0xFFFFFFFF;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  add_over_threads<32>(of, layer);
  const auto of_warp = [&](float value) { return __shfl_sync(kAll, value, 0); };
  of = {of_warp(of.mean_or_most), of_warp(of.squares), of_warp(of.count)};
  const float whole = __all_sync(kAll, good) != 0 ? 1 : 0;
  float4* slot = here.moments + part * warps + static_cast<int>(threadIdx.x) / 32;
  if (parts == 1) {
    if (lane == 0) *slot = make_float4(of.mean_or_most, of.squares, of.count, whole);
    __syncthreads();
  } else {
    ptx::cluster_wait();
    if (lane < parts) {
      const uint32_t bar = ptx::address_in(&here.all_here, lane);
      ptx::store_in(ptx::address_in(slot, lane), of.mean_or_most, of.squares, of.count, whole, bar);
    }
    // NOTE: it ends, as the polls of every CTA do.
    while (!ptx::barrier_try_wait(&here.all_here, 0)) continue;
  }
  of = {};
#pragma unroll 1
  for (int slot = lane; slot < parts * warps; slot += 32) {
    const float4 moments = here.moments[slot];
    good = good && moments.w != 0;
    of.add({moments.x, moments.y, moments.z}, layer);
  }
  add_over_threads<32>(of, layer);
  of = {of_warp(of.mean_or_most), of_warp(of.squares), of_warp(of.count)};
  return __all_sync(kAll, good) != 0;
}

}  // namespace tilewire::cuda
