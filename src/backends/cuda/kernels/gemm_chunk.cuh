// The layout of a thread's results in chunks (64 rows x 128 bytes of shared memory), and their stores and loads.
// Used by gemm_sum.cuh and gemm_epilogue.cuh.
#pragma once

#include <type_traits>

#include "backends/cuda/kernels/elements.cuh"
#include "backends/cuda/kernels/gemm_stage.cuh"

namespace tilewire::cuda {

/// Offset in a chunk of this lane's 16 bytes of a unit, for ptx::store_blocks: 8 columns of 16 bits of one row. A unit
/// is 16 columns of the wgmma result; without swap-AB these are 16 columns of the chunk.
__device__ inline uint32_t unit_place(uint32_t swizzle, uint32_t unit) {
  const uint32_t thread = ptx::thread_here();
  const uint32_t lane = thread % 32;
  return thread % 128 / 32 * 16 * 128 + lane % 16 * 128 + ((unit * 2 + lane / 16) ^ (lane & swizzle)) * 16;
}

/// The same with swap-AB, for ptx::store_blocks_turned: a unit is 16 rows of the chunk; the 16 rows of a warp are
/// columns.
__device__ inline uint32_t swapped_place(uint32_t swizzle, uint32_t unit) {
  const uint32_t thread = ptx::thread_here();
  const uint32_t lane = thread % 32;
  const uint32_t row = unit * 16 + lane / 16 * 8 + lane % 8;
  return row * 128 + ((thread % 128 / 32 * 2 + lane / 8 % 2) ^ (row & swizzle)) * 16;
}

/// The offset of this lane's part of unit `unit`, for the body.
template <class Body>
__device__ __forceinline__ uint32_t place_of(uint32_t swizzle, uint32_t unit) {
  return Body::kSwapAb ? swapped_place(swizzle, unit) : unit_place(swizzle, unit);
}

/// Load a unit from a chunk, in pairs of 16 bits. `from`: the chunk's address plus place_of.
template <class Body>
__device__ __forceinline__ void load_unit(uint32_t from, uint32_t (&pairs)[4]) {
  if constexpr (Body::kSwapAb) {
    ptx::load_blocks_turned(from, pairs);
  } else {
    ptx::load_blocks(from, pairs);
  }
}

/// Store a unit to a chunk.
template <class Body>
__device__ __forceinline__ void keep_unit(uint32_t to, const uint32_t* v) {
  if constexpr (Body::kSwapAb) {
    ptx::store_blocks_turned(to, v[0], v[1], v[2], v[3]);
  } else {
    ptx::store_blocks(to, v[0], v[1], v[2], v[3]);
  }
}

/// Store 16 columns of a warpgroup's fp32 accumulators to unit `unit` of a chunk of 32 fp32 columns. `v` has the layout
/// of wgmma: for each 8 columns, this thread's 2 columns of one row, then the same 2 columns of row + 8.
__device__ inline void write_unit(uint32_t chunk, uint32_t swizzle, uint32_t unit, const float* v) {
  const uint32_t thread = ptx::thread_here();
  const uint32_t lane = thread % 32;
  const uint32_t row = lane / 4;
  const uint32_t to = chunk + thread % 128 / 32 * 16 * 128 + row * 128 + lane % 2 * 8;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t at = ((unit * 4 + i * 2 + lane % 4 / 2) ^ (row & swizzle)) * 16;
    ptx::store_pair(to + at, v[4 * i], v[4 * i + 1]);
    ptx::store_pair(to + at + 8 * 128, v[4 * i + 2], v[4 * i + 3]);
  }
}

/// The same with swap-AB: 16 columns of the wgmma result are rows of the chunk, from row 16 * `unit` on; the 16 rows of
/// each warp are columns. Of the two fp32 chunks side by side, chunk `piece` has the columns of two warps.
__device__ inline void write_swapped(uint32_t chunk, uint32_t swizzle, uint32_t unit, uint32_t piece, const float* v) {
  const uint32_t thread = ptx::thread_here();
  const uint32_t lane = thread % 32;
  const uint32_t warp = thread % 128 / 32;
  if (warp / 2 != piece) return;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t row = unit * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2;
    const uint32_t col = warp % 2 * 16 + i / 2 % 2 * 8 + lane / 4;
    ptx::store_word(chunk + row * 128 + (col / 4 ^ (row & swizzle)) * 16 + col % 4 * 4, v[i]);
  }
}

inline constexpr int kUnitCols = 16;
/// Number of units in a chunk.
template <class Body, typename Out>
inline constexpr int kUnits = Body::kSwapAb ? 4 : ChunkPlace<Body, Out>::kCols / kUnitCols;

/// Store a unit of a thread's values to a chunk: fp32 sums, or pairs of 16 bits.
template <class Body, typename Value>
__device__ inline void write_unit_of(uint32_t chunk, uint32_t swizzle, uint32_t unit, uint32_t piece, const Value* v) {
  if constexpr (std::is_same_v<Value, uint32_t>) {
    keep_unit<Body>(chunk + place_of<Body>(swizzle, unit), v);
  } else if constexpr (Body::kSwapAb) {
    write_swapped(chunk, swizzle, unit, piece, v);
  } else {
    write_unit(chunk, swizzle, unit, v);
  }
}

/// Round sums to pairs of 16 bits.
template <typename In, int kCount>
__device__ inline void pack_sums(uint32_t* packed, const float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) packed[i] = round_pair(In{}, sums[2 * i], sums[2 * i + 1]);
}

}  // namespace tilewire::cuda
