// The epilogue of a tile, step by step, on the sums in a consumer's registers.
// Used by gemm_epilogue.cuh and gemm_tiles.cuh.
#pragma once

#include "backends/cuda/kernels/elements.cuh"
#include "backends/cuda/kernels/gemm_cta.cuh"

namespace tilewire::cuda {

/// Element `at` of a step's operand, in fp32.
template <typename In>
__device__ inline float operand_at(const EpilogueRecord& step, int64_t at) {
  if (step.dtype == DType::fp32) return reinterpret_cast<const float*>(step.operand)[at];
  return static_cast<float>(reinterpret_cast<const In*>(step.operand)[at]);
}

/// The bias of a column of the tile.
template <typename In>
__device__ inline float bias_of(const EpilogueRecord& step, const TileRecord& tile, int col) {
  return col < tile.cols ? operand_at<In>(step, col) : 0;
}

/// The residual of two neighbouring columns in a row of the tile.
template <typename In>
__device__ inline float2 residual_of(const EpilogueRecord& step, const TileRecord& tile, int row, int col) {
  if (row >= tile.rows || col >= tile.cols) return {};
  const int64_t at = row * step.ld + col;
  const std::byte* pair = step.operand + 2 * at;
  if (step.dtype != DType::fp32 && reinterpret_cast<uintptr_t>(pair) % 4 == 0 && col + 1 < tile.cols)
    return widen_pair(In{}, *reinterpret_cast<const uint32_t*>(pair));
  return {operand_at<In>(step, at), col + 1 < tile.cols ? operand_at<In>(step, at + 1) : 0};
}

/// Add the bias to kBlocks blocks of sums, from column `first` of the tile on. With swap-AB, the sums are some rows of
/// the consumer's 64 columns.
template <class Body, int kBlocks, int kValues>
__device__ __forceinline__ void add_bias(const EpilogueRecord& step, const TileRecord& tile, int first,
                                         float (&sums)[kBlocks][kValues]) {
  using In = typename Body::In;
  const int thread = static_cast<int>(ptx::thread_here());
  if constexpr (Body::kSwapAb) {
    const int col = first + thread % 128 / 32 * 16 + thread % 32 / 4;
    const float x = bias_of<In>(step, tile, col);
    const float y = bias_of<In>(step, tile, col + 8);
#pragma unroll
    for (int i = 0; i < kValues; ++i) sums[0][i] += i % 4 < 2 ? x : y;
    return;
  }
  first += thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < kValues / 4; ++i) {
    const int col = first + i * 8;
    const float x = bias_of<In>(step, tile, col);
    const float y = bias_of<In>(step, tile, col + 1);
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
      sums[m][4 * i] += x;
      sums[m][4 * i + 1] += y;
      sums[m][4 * i + 2] += x;
      sums[m][4 * i + 3] += y;
    }
  }
}

/// Apply `change` to all sums of a thread, kSome values at a time. `change` gets the values, the number of their block,
/// and their place in it. NOTE: the values rotate through the first registers, so that one copy of the code serves all;
/// unrolled code would be half of the kernel.
template <int kBlocks, int kValues, class Change>
__device__ __forceinline__ void change_sums(float (&sums)[kBlocks][kValues], const Change& change) {
  constexpr int kAll = kBlocks * kValues;
  constexpr int kSome = kValues % 32 == 0 ? 32 : kValues % 16 == 0 ? 16 : 8;
  static_assert(kValues % kSome == 0);
#pragma unroll 1
  for (int done = 0; done < kAll; done += kSome) {
    float some[kSome];
#pragma unroll
    for (int i = 0; i < kSome; ++i) some[i] = sums[i / kValues][i % kValues];
    change(some, done / kValues, done % kValues);
#pragma unroll
    for (int i = kSome; i < kAll; ++i) {
      const int to = i - kSome;
      sums[to / kValues][to % kValues] = sums[i / kValues][i % kValues];
    }
#pragma unroll
    for (int i = 0; i < kSome; ++i) {
      const int to = kAll - kSome + i;
      sums[to / kValues][to % kValues] = some[i];
    }
  }
}

/// Add the residual to sums that begin at (row, col) of the tile.
template <class Body, int kBlocks, int kValues>
__device__ __forceinline__ void add_residual(const EpilogueRecord& step, const TileRecord& tile, int row, int col,
                                             float (&sums)[kBlocks][kValues]) {
  using In = typename Body::In;
  const int thread = static_cast<int>(ptx::thread_here());
  const int line = thread % 128 / 32 * 16 + thread % 32 / 4;
  const int pair = thread % 4 * 2;
  change_sums(sums, [&](auto& some, int block, int first) {
    constexpr int kSome = sizeof(some) / sizeof(float);
#pragma unroll
    for (int i = 0; i < kSome; i += 2) {
      const int along = (first + i) / 4 * 8 + pair;
      const int across = block * 64 + line + i % 4 / 2 * 8;
      if constexpr (Body::kSwapAb) {
        const int at_col = col + across;
#pragma unroll
        for (int next = 0; next < 2; ++next) {
          const int at_row = row + along + next;
          if (at_row < tile.rows && at_col < tile.cols)
            some[i + next] += operand_at<In>(step, at_row * step.ld + at_col);
        }
      } else {
        const float2 two = residual_of<In>(step, tile, row + across, col + along);
        some[i] += two.x;
        some[i + 1] += two.y;
      }
    }
  });
}

/// Apply `change` to each of a thread's sums.
template <int kBlocks, int kValues, class Change>
__device__ __forceinline__ void change_each(float (&sums)[kBlocks][kValues], const Change& change) {
  change_sums(sums, [&](auto& some, int, int) {
    constexpr int kSome = sizeof(some) / sizeof(float);
#pragma unroll
    for (int i = 0; i < kSome; ++i) some[i] = change(some[i]);
  });
}

/// Apply one step of an epilogue, to sums as in apply_steps.
template <class Body, int kBlocks, int kValues>
__device__ __forceinline__ void apply_step(const EpilogueRecord& step, const TileRecord& tile, int row, int col,
                                           float (&sums)[kBlocks][kValues]) {
  switch (step.kind) {
    case EpilogueKind::bias:
      add_bias<Body>(step, tile, col, sums);
      break;
    case EpilogueKind::residual:
      add_residual<Body>(step, tile, row, col, sums);
      break;
    case EpilogueKind::gelu:
      change_each(sums, [](float value) { return value * (0.5F * (1.0F + erff(value * 0.70710678F))); });
      break;
    case EpilogueKind::relu:
      change_each(sums, [](float value) { return value < 0 ? 0 : value; });
      break;
    case EpilogueKind::scale:
      change_each(sums, [factor = step.value](float value) { return value * factor; });
      break;
    case EpilogueKind::swiglu_pairs:
      break;  // slow_tile
  }
}

/// Apply the tile's epilogue, if any, to kBlocks blocks of sums that begin at (row, col) of the tile; with swap-AB, to
/// rows. The arithmetic is that of apply_epilogue (finish.cuh). NOTE: bodies without kSteps apply at most one bias. If
/// registers are full, code for other steps costs tiles without them 3 to 10 %.
template <class Body, int kBlocks, int kValues>
__device__ __forceinline__ void apply_steps(const Cta<Body>& cta, const TileRecord& tile, int row, int col,
                                            float (&sums)[kBlocks][kValues]) {
  const auto step_of = [&](uint32_t index) {
    EpilogueRecord step = cta.launch.table.epilogue[tile.first_step + index];
    step.operand = resolve(cta.launch.workers.bases, step.operand);
    return step;
  };
  if constexpr (Body::kSteps) {
#pragma unroll 1
    for (uint32_t i = 0; i < tile.num_steps; ++i) apply_step<Body>(step_of(i), tile, row, col, sums);
  } else if (tile.num_steps > 0) {
    add_bias<Body>(step_of(0), tile, col, sums);
  }
}

/// The same for all sums of a consumer.
template <class Body>
__device__ __forceinline__ void apply_steps(const Cta<Body>& cta, const TileRecord& tile, int group,
                                            float (&sums)[Body::kBlocksM][Body::kGroupN / 2]) {
  const int row = Body::kSwapAb || Body::kSplitN ? 0 : group * Body::kGroupM;
  const int col = Body::kSwapAb ? group * Body::kGroupM : Body::kSplitN ? group * Body::kGroupN : 0;
  apply_steps(cta, tile, row, col, sums);
}

}  // namespace tilewire::cuda
