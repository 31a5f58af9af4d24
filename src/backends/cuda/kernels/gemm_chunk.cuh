// Where a thread's results are in the chunks of 64 rows of 128 bytes in which they lie in shared memory, and how they
// come there and back. Used by gemm_sum.cuh and gemm_epilogue.cuh.
#pragma once

#include <type_traits>

#include "backends/cuda/kernels/elements.cuh"
#include "backends/cuda/kernels/gemm_cta.cuh"

namespace tilewire::cuda {

/// Where a lane's 16 bytes of a unit lie in a chunk of 64 columns of 16 bits (ptx::store_blocks): 8 columns of a row.
/// A unit is 16 columns of the matrix instruction: as many of the chunk,
__device__ inline uint32_t unit_place(uint32_t swizzle, uint32_t unit) {
  const uint32_t thread = ptx::thread_here();
  const uint32_t lane = thread % 32;
  return thread % 128 / 32 * 16 * 128 + lane % 16 * 128 + ((unit * 2 + lane / 16) ^ (lane & swizzle)) * 16;
}

/// or 16 of its rows, where the body flips: the warps' 16 rows each are its columns (ptx::store_blocks_turned).
__device__ inline uint32_t swapped_place(uint32_t swizzle, uint32_t unit) {
  const uint32_t thread = ptx::thread_here();
  const uint32_t lane = thread % 32;
  const uint32_t row = unit * 16 + lane / 16 * 8 + lane % 8;
  return row * 128 + ((thread % 128 / 32 * 2 + lane / 8 % 2) ^ (row & swizzle)) * 16;
}

/// Where a lane's part of unit `unit` is, as the body has it.
template <class Body>
__device__ __forceinline__ uint32_t place_of(uint32_t swizzle, uint32_t unit) {
  return Body::kSwapAb ? swapped_place(swizzle, unit) : unit_place(swizzle, unit);
}

/// A unit from a chunk, in pairs of 16 bits; `from`: with its place.
template <class Body>
__device__ __forceinline__ void load_unit(uint32_t from, uint32_t (&pairs)[4]) {
  if constexpr (Body::kSwapAb) {
    ptx::load_blocks_turned(from, pairs);
  } else {
    ptx::load_blocks(from, pairs);
  }
}

/// And to a chunk.
template <class Body>
__device__ __forceinline__ void keep_unit(uint32_t to, const uint32_t* v) {
  if constexpr (Body::kSwapAb) {
    ptx::store_blocks_turned(to, v[0], v[1], v[2], v[3]);
  } else {
    ptx::store_blocks(to, v[0], v[1], v[2], v[3]);
  }
}

/// 16 columns of a warpgroup's sums, as the matrix instruction leaves them: for each 8 columns, {row, row, row + 8, row
/// + 8} x {2 columns} of this thread. To unit `unit` of a chunk of 32 columns of fp32.
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

/// The same of a body that flips: 16 columns of the matrix instruction are rows of the tile, from row 16 * `unit` of
/// the chunk on, and the warps' 16 rows each are its columns. Of fp32, piece `piece` of two has those of two warps.
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
/// Units of a thread in a chunk.
template <class Body, typename Out>
inline constexpr int kUnits = Body::kSwapAb ? 4 : ChunkPlace<Body, Out>::kCols / kUnitCols;

/// A unit of a thread's values to a chunk: sums of fp32, or pairs of 16 bits.
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
