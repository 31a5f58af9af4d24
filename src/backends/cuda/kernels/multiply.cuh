// Products without tensor cores, for types and shapes that gemm_tiles does not take.
// Used by ops.cuh.
#pragma once

#include "backends/cuda/kernels/finish.cuh"

namespace tilewire::cuda {

/// Add an op's addends to a product, in the order of the sum. The product is rounded to the addends' dtype first.
__device__ inline float complete_sum(const WorkerTable& table, const OpRecord& step, int row, int col, float product) {
  const int operands = step.rows_below > 0 ? 3 : 2;
  const int addends = step.num_sources - operands;
  if (addends == 0) return product;
  const SourceRecord* from = table.sources + step.first_source + operands;
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i <= addends; ++i) {
    const SourceRecord& addend = from[i - (i > step.product_place ? 1 : 0)];
    const float term =
        i == step.product_place
            ? round_to(product, from->dtype)
            : load_element(addend.data + (row * addend.ld + col) * element_bytes(addend.dtype), addend.dtype);
    sum = i == 0 ? term : __fadd_rn(sum, term);
  }
  return sum;
}

/// One column of a pair of columns, which neighbouring threads have: silu(gate) * up, at the thread with the gate.
__device__ inline float join_pair(float product) {
  const float up = __shfl_xor_sync(0xFFFFFFFF, product, 1);
  return product / (1.0F + expf(-product)) * up;
}

/// Products without tensor cores, of any dtype, layout and alignment: blocks of 64 x 64, 16 elements of K at a time.
__device__ inline void multiply_op(const WorkerTable& table, const OpRecord& step) {
  constexpr int kSide = 64;
  constexpr int kDepth = 16;
  constexpr int kOwn = 4;
  __shared__ float a_block[kDepth][kSide + 1];
  __shared__ float b_block[kDepth][kSide + 1];
  const SourceRecord a = table.sources[step.first_source];
  const SourceRecord b = table.sources[step.first_source + 1];
  const SourceRecord a_below = table.sources[step.first_source + (step.rows_below > 0 ? 2 : 0)];
  const int rows_above = step.rows - step.rows_below;
  const bool pairs = step.num_epilogue > 0 && table.epilogue[step.first_epilogue].kind == EpilogueKind::swiglu_pairs;
  const int cols = pairs ? 2 * step.cols : step.cols;  // of B
  const auto load = [&](const SourceRecord& from, bool k_major, int line, int lines, int k) {
    if (line >= lines || k >= step.depth) return 0.0F;
    const int64_t at = k_major ? k * from.ld + line : line * from.ld + k;
    return load_element(from.data + at * element_bytes(from.dtype), from.dtype);
  };
  const int x = static_cast<int>(threadIdx.x) % 16;
  const int y = static_cast<int>(threadIdx.x) / 16;
  for (int row0 = 0; row0 < step.rows; row0 += kSide) {
    for (int col0 = 0; col0 < cols; col0 += kSide) {
      float sums[kOwn][kOwn] = {};
      for (int k0 = 0; k0 < step.depth; k0 += kDepth) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < kSide * kDepth; i += kOpThreads) {
          const int k = i % kDepth;
          const int line = i / kDepth;
          const int below = row0 + line - rows_above;
          a_block[k][line] = below < 0 ? load(a, false, row0 + line, step.rows, k0 + k)
                                       : load(a_below, false, below, step.rows_below, k0 + k);
        }
        for (int i = static_cast<int>(threadIdx.x); i < kSide * kDepth; i += kOpThreads) {
          const int k = step.b_is_kn ? i / kSide : i % kDepth;
          const int line = step.b_is_kn ? i % kSide : i / kDepth;
          b_block[k][line] = load(b, step.b_is_kn, col0 + line, cols, k0 + k);
        }
        __syncthreads();
        for (int k = 0; k < kDepth; ++k) {
#pragma unroll
          for (int i = 0; i < kOwn; ++i) {
#pragma unroll
            for (int j = 0; j < kOwn; ++j) sums[i][j] += a_block[k][y + 16 * i] * b_block[k][x + 16 * j];
          }
        }
      }
      for (int i = 0; i < kOwn; ++i) {
        for (int j = 0; j < kOwn; ++j) {
          const int row = row0 + y + 16 * i;
          const int col = col0 + x + 16 * j;
          const float product = pairs ? join_pair(sums[i][j]) : sums[i][j];
          if (row >= step.rows || col >= cols || (pairs && col % 2 != 0)) continue;
          const int to = pairs ? col / 2 : col;
          finish_element(table, step, row, to, complete_sum(table, step, row, to, product));
        }
      }
    }
  }
}

}  // namespace tilewire::cuda
