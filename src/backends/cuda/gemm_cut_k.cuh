// Tiles that the CTAs of a cluster make together, each over a part of K: the first one adds what the others have, which
// comes through its stages, in their order. Used by the loading warp and the consumers.
#pragma once

#include "backends/cuda/gemm_cta.cuh"

namespace tilewire::cuda {

/// The loading thread of the CTA that adds, after a tile's steps: as stages get free, one for each consumer of each
/// other CTA, which is told its number.
template <class Body>
__device__ inline void offer_stages(const Cta<Body>& cta, Fill<Body>& fill) {
  constexpr uint32_t kBytes = Body::kGroupM * Body::kGroupN * sizeof(float);
  Control<Body>& control = cta.control;
#pragma unroll 1
  for (uint32_t part = 2; part < 2 * cta.size; ++part) {
    const uint32_t group = part % 2;
    const uint32_t from = part / 2;
    ptx::barrier_wait(&control.empty[fill.index()], fill.phase());
    ptx::barrier_arrive_expect(&control.full[fill.stage.index], kBytes);
    ptx::store_in(ptx::address_in(&control.room_stage[group], from), static_cast<uint32_t>(fill.stage.index),
                  ptx::address_in(&control.room[group], from));
    fill.next();
  }
}

/// A consumer of another CTA: its sums go there, 16 bytes of each thread after another. `phase`: parity of the tile.
template <class Body>
__device__ inline void give_part(const Cta<Body>& cta, int group,
                                 const float (&sums)[Body::kBlocksM][Body::kGroupN / 2], uint32_t phase) {
  Control<Body>& control = cta.control;
  const uint32_t thread = ptx::thread_here() % 128;
  if (thread == 0) ptx::barrier_arrive_expect(&control.room[group], sizeof(control.room_stage[group]));
  ptx::barrier_wait(&control.room[group], phase);
  const uint32_t stage = *static_cast<volatile uint32_t*>(&control.room_stage[group]);
  const uint32_t to = ptx::address_in(cta.stages + stage * Body::kStageBytes, 0) + thread * 16;
  const uint32_t here = ptx::address_in(&control.full[stage], 0);
#pragma unroll
  for (int m = 0; m < Body::kBlocksM; ++m) {
#pragma unroll
    for (int i = 0; i < Body::kGroupN / 8; ++i) {
      const float* v = sums[m] + 4 * i;
      ptx::store_in(to + (m * (Body::kGroupN / 8) + i) * 128 * 16, v[0], v[1], v[2], v[3], here);
    }
  }
}

/// A consumer of the CTA that adds: the other parts, as they come.
template <class Body>
__device__ inline void add_given(const Cta<Body>& cta, int group, float (&sums)[Body::kBlocksM][Body::kGroupN / 2],
                                 Ring<Body::kStages>& stage) {
#pragma unroll 1
  for (uint32_t part = 2; part < 2 * cta.size; ++part, stage.next()) {
    ptx::barrier_wait(&cta.control.full[stage.index], stage.phase);
    if (part % 2 == static_cast<uint32_t>(group)) {
      const uint32_t from =
          ptx::shared_address(cta.stages + stage.index * Body::kStageBytes) + ptx::thread_here() % 128 * 16;
#pragma unroll
      for (int m = 0; m < Body::kBlocksM; ++m) {
#pragma unroll
        for (int i = 0; i < Body::kGroupN / 8; ++i) {
          const float4 v = ptx::load_quad(from + (m * (Body::kGroupN / 8) + i) * 128 * 16);
          float* sum = sums[m] + 4 * i;
          sum[0] = __fadd_rn(sum[0], v.x);
          sum[1] = __fadd_rn(sum[1], v.y);
          sum[2] = __fadd_rn(sum[2], v.z);
          sum[3] = __fadd_rn(sum[3], v.w);
        }
      }
      ptx::fence_async_shared();
    }
    __syncwarp();
    release_stage(cta, stage.index);
  }
}

}  // namespace tilewire::cuda
