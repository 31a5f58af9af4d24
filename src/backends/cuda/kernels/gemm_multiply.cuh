// The products of a consumer warpgroup: wgmma of one step of K.
// Used by gemm_tiles.cuh.
#pragma once

#include "backends/cuda/kernels/gemm_stage.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace tilewire::cuda {

/// One step of K for kCols columns of wgmma; `a` and `b` are descriptors of the consumer's part.
/// NOTE: keep all functions from here to consume_tiles inline: otherwise ptxas makes each wgmma wait for the last one.
template <class Body, int kCols>
__device__ __forceinline__ void multiply_cols(float (&sums)[Body::kBlocksM][Body::kGroupN / 2], uint64_t a, uint64_t b,
                                              bool add) {
  // Bytes from one wgmma to the next, 16 elements of K.
  constexpr int kAdvanceA = Body::kSwapAb && Body::kNMajor ? 16 * 128 : 32;
  constexpr int kAdvanceB = !Body::kSwapAb && Body::kNMajor ? 16 * 128 : 32;
  ptx::matrix_fence();
#pragma unroll
  for (int k = 0; k < kTileK / 16; ++k) {
#pragma unroll
    for (int m = 0; m < Body::kBlocksM; ++m) {
      ptx::multiply<typename Body::In, kAdvanceA != 32, kAdvanceB != 32, kCols>(
          sums[m], a + ((m * 64 * 128 + k * kAdvanceA) >> 4), b + (k * kAdvanceB >> 4), add || k > 0);
    }
  }
  ptx::matrix_commit();
}

/// The same for the launch's runtime number of rows, with code for each number.
template <class Body, int kFirst, int kLast>
__device__ __forceinline__ void multiply_rows(float (&sums)[Body::kBlocksM][Body::kGroupN / 2], uint64_t a, uint64_t b,
                                              bool add, int rows) {
  if constexpr (kFirst == kLast) {
    multiply_cols<Body, kFirst>(sums, a, b, add);
  } else {
    constexpr int kMiddle = (kFirst / 8 + kLast / 8) / 2 * 8;
    if (rows <= kMiddle) {
      multiply_rows<Body, kFirst, kMiddle>(sums, a, b, add, rows);
    } else {
      multiply_rows<Body, kMiddle + 8, kLast>(sums, a, b, add, rows);
    }
  }
}

/// One step of K for one consumer warpgroup; `a` and `b` are descriptors of its part of stage 0.
template <class Body>
__device__ __forceinline__ void multiply_op(const Cta<Body>& cta, float (&sums)[Body::kBlocksM][Body::kGroupN / 2],
                                            uint64_t a, uint64_t b, int stage, bool add, int rows) {
  a += stage * (Body::kStageBytes >> 4);
  b += stage * (Body::kStageBytes >> 4);
  if constexpr (Body::kSwapAb) {
    multiply_rows<Body, Body::kLeastM, Body::kTileM>(sums, a, b, add, rows);
  } else {
    multiply_cols<Body, Body::kGroupN>(sums, a, b, add);
  }
}

/// One step of K. Release the stage of the step before when this step's wgmma are issued. With kSplitN (few rows)
/// memory is the limit and the next step may come late: release this step's stage as soon as it is read.
template <class Body>
__device__ __forceinline__ void take_op(const Cta<Body>& cta, float (&sums)[Body::kBlocksM][Body::kGroupN / 2],
                                        uint64_t a, uint64_t b, int step, int rows, Ring<Body::kStages>& stage,
                                        int& previous) {
  ptx::barrier_wait(&cta.control.full[stage.index], stage.phase);
  multiply_op(cta, sums, a, b, stage.index, step > 0, rows);
  if constexpr (Body::kSplitN) {
    ptx::matrix_wait<0>();
    release_stage(cta, stage.index);
  } else {
    if (step > 0) {
      ptx::matrix_wait<1>();
      release_stage(cta, previous);
    }
    previous = stage.index;
  }
  stage.next();
}

}  // namespace tilewire::cuda
