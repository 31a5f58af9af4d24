// Moments of rows for norms, and the end of a norm by the threads that have a row's elements.
// Included by norm_columns.cuh and norm_rows.cuh.
#pragma once

#include "backends/cuda/kernels/sum_units.cuh"

namespace tilewire::cuda {

/// Mean of some elements, and sum of the squares of their distances from it. Of an RMSNorm: from 0.
struct Spread {
  float mean = 0;
  float squares = 0;
  float count = 0;

  /// Add other elements.
  __device__ void add(const Spread& other, bool layer) {
    const float all = count + other.count;
    if (layer && all > 0) {
      const float apart = other.mean - mean;
      const float share = other.count / all;
      squares += apart * apart * count * share;
      mean += apart * share;
    }
    squares += other.squares;
    count = all;
  }
};

__device__ __forceinline__ Spread spread_of(const float (&values)[kEight], bool layer) {
  Spread of{.count = kEight};
  if (layer) {
#pragma unroll
    for (const float value : values) of.mean += value;
    of.mean /= kEight;
  }
#pragma unroll
  for (const float value : values) of.squares += (value - of.mean) * (value - of.mean);
  return of;
}

/// Add the spreads of kThreads neighbouring threads of a warp; the first of them has the result.
template <int kThreads>
__device__ __forceinline__ void add_over_threads(Spread& of, bool layer) {
#pragma unroll
  for (int apart = kThreads / 2; apart > 0; apart /= 2) {
    const Spread other{__shfl_down_sync(0xFFFFFFFF, of.mean, apart, kThreads),
                       __shfl_down_sync(0xFFFFFFFF, of.squares, apart, kThreads),
                       __shfl_down_sync(0xFFFFFFFF, of.count, apart, kThreads)};
    of.add(other, layer);
  }
}

/// A thread's units: normalise and store them. `whole`: the spread of their row.
template <typename T, int kUnits>
__device__ __forceinline__ void store_normed(const RowNorm& norm, const Bases& bases, const Spread& whole,
                                             const ThreadUnits<kUnits>& at, const Operands (&operands)[kUnits],
                                             const float (&values)[kUnits][kEight]) {
  const float factor = 1.0F / sqrtf(whole.squares / whole.count + norm.eps);
  std::byte* row = resolve(bases, norm.normed.data) + at.row * norm.normed.ld * 2;
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    if (!at.has(unit)) break;
    float gains[kEight];
    float biases[kEight];
    widen_eight<T>(operands[unit].norm_weight, gains);
    widen_eight<T>(operands[unit].norm_bias, biases);
    float normed[kEight];
#pragma unroll
    for (int i = 0; i < kEight; ++i)
      normed[i] = (values[unit][i] - whole.mean) * factor * gains[i] + (norm.layer ? biases[i] : 0);
    *reinterpret_cast<uint4*>(row + at.col(unit) * 2) = round_eight<T>(normed);
  }
}

}  // namespace tilewire::cuda
