// A stage of a GEMM CTA in shared memory: A and B of one step of K.
// Used by gemm_chunk.cuh and gemm_loads.cuh.
#pragma once

#include "backends/cuda/kernels/gemm_cta.cuh"

namespace tilewire::cuda {

/// The lines in a stage that are the rows of a consumer's wgmma: rows of A, or columns of B with swap-AB. The other
/// consumer does not use them, except with kSplitN.
template <class Body>
__device__ inline uint8_t* own_lines(const Cta<Body>& cta, int group, int stage) {
  const int first = (Body::kSwapAb ? Body::kBytesA : 0) + (Body::kSplitN ? 0 : group * Body::kGroupM * 128);
  return cta.stages + stage * Body::kStageBytes + first;
}

/// Rows of a tile with runtime rows that are loaded and multiplied: the launch's, or of a group those that it has.
template <class Body>
__device__ inline int rows_made(const Cta<Body>& cta, const TileRecord& tile) {
  if constexpr (Body::kGroups) return max(8, (tile.rows + 7) / 8 * 8);
  return cta.launch.tile_rows;
}

/// Bytes that one step of K of a tile loads into a stage.
template <class Body>
__device__ inline uint32_t step_bytes(const Cta<Body>& cta, const TileRecord& tile) {
  return (Body::kSwapAb ? rows_made(cta, tile) * kTileK * 2 : Body::kBytesA) + Body::kBytesB;
}

/// Whether the launch's tiles have rows in this chunk.
template <class Body>
__device__ inline bool has_chunk(const Cta<Body>& cta, int chunk) {
  return !Body::kSwapAb || chunk * 64 < cta.launch.tile_rows;
}

/// Release a stage for this warp: arrive on `empty` of every CTA that loads into it.
template <class Body>
__device__ inline void release_stage(const Cta<Body>& cta, int stage) {
  const uint32_t lane = threadIdx.x % 32;
  if (cta.size == 1) {
    if (lane == 0) ptx::barrier_arrive(&cta.control.empty[stage]);
  } else if ((cta.a_ctas | cta.b_ctas) >> lane & 1) {
    ptx::barrier_arrive_at(&cta.control.empty[stage], lane);
  }
}

}  // namespace tilewire::cuda
