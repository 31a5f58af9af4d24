// Moments of rows for norms, and the end of a norm by the threads that have a row's elements.
// Included by norm_columns.cuh and norm_rows.cuh.
#pragma once

#include "backends/cuda/kernels/sum_units.cuh"

namespace tilewire::cuda {

/// Of a layer norm: mean of some elements, and sum of the squares of their distances from it. Of an RMSNorm: the
/// largest |element x weight|, if its rows are quantised, and sum of the squares.
struct Spread {
  float mean_or_most = 0;
  float squares = 0;
  float count = 0;

  /// Add other elements.
  __device__ void add(const Spread& other, bool layer) {
    const float all = count + other.count;
    if (layer && all > 0) {
      const float apart = other.mean_or_most - mean_or_most;
      const float share = other.count / all;
      squares += apart * apart * count * share;
      mean_or_most += apart * share;
    }
    if (!layer) mean_or_most = larger(mean_or_most, other.mean_or_most);
    squares += other.squares;
    count = all;
  }
};

template <typename T>
__device__ __forceinline__ Spread spread_of(const RowNorm& norm, const Operands& operands,
                                            const float (&values)[kUnit<T>]) {
  Spread of{.count = kUnit<T>};
  float mean = 0;
  if (norm.layer) {
#pragma unroll
    for (const float value : values) mean += value;
    mean /= kUnit<T>;
    of.mean_or_most = mean;
  }
#pragma unroll
  for (const float value : values) of.squares += (value - mean) * (value - mean);
  if (is_one_byte(norm.normed.dtype)) {
    float gains[kUnit<T>];
    widen_unit<T>(operands.norm_weight, gains);
#pragma unroll
    for (int i = 0; i < kUnit<T>; ++i) of.mean_or_most = larger(of.mean_or_most, fabsf(values[i] * gains[i]));
  }
  return of;
}

/// Add the spreads of kThreads neighbouring threads of a warp; the first of them has the result.
template <int kThreads>
__device__ __forceinline__ void add_over_threads(Spread& of, bool layer) {
#pragma unroll
  for (int apart = kThreads / 2; apart > 0; apart /= 2) {
    const Spread other{__shfl_down_sync(0xFFFFFFFF, of.mean_or_most, apart, kThreads),
                       __shfl_down_sync(0xFFFFFFFF, of.squares, apart, kThreads),
                       __shfl_down_sync(0xFFFFFFFF, of.count, apart, kThreads)};
    of.add(other, layer);
  }
}

template <typename T>
__device__ __forceinline__ void store_quantised_unit(std::byte* to, DType dtype, const float (&values)[kUnit<T>],
                                                     float scale) {
  if constexpr (sizeof(T) == 2) {
    store_quantised(to, dtype, values, scale);
  } else {
#pragma unroll
    for (int i = 0; i < kUnit<T>; ++i) store_quantised(to + i, dtype, values[i], scale);
  }
}

/// A thread's units: normalise and store them. `whole`: the spread of their row.
template <typename T, int kUnits>
__device__ __forceinline__ void store_normed(const RowNorm& norm, const Bases& bases, const Spread& whole,
                                             const ThreadUnits<kUnits>& at, const Operands (&operands)[kUnits],
                                             const float (&values)[kUnits][kUnit<T>]) {
  const float factor = 1.0F / sqrtf(whole.squares / whole.count + norm.eps);
  const float mean = norm.layer ? whole.mean_or_most : 0;
  const DType dtype = norm.normed.dtype;
  std::byte* row = resolve(bases, norm.normed.data) + at.row * norm.normed.ld * (is_one_byte(dtype) ? 1 : sizeof(T));
  const float scale = is_one_byte(dtype) ? scale_of(whole.mean_or_most * factor, dtype) : 1;
  if (is_one_byte(dtype) && at.has(0) && at.first_col == 0)
    *reinterpret_cast<float*>(resolve(bases, norm.scale.data) + at.row * norm.scale.ld * sizeof(float)) = scale;
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    if (!at.has(unit)) break;
    float gains[kUnit<T>];
    float biases[kUnit<T>];
    widen_unit<T>(operands[unit].norm_weight, gains);
    widen_unit<T>(operands[unit].norm_bias, biases);
    float normed[kUnit<T>];
#pragma unroll
    for (int i = 0; i < kUnit<T>; ++i)
      normed[i] = (values[unit][i] - mean) * factor * gains[i] + (norm.layer ? biases[i] : 0);
    if (is_one_byte(dtype)) {
      store_quantised_unit<T>(row + at.col(unit), dtype, normed, scale);
    } else {
      *reinterpret_cast<uint4*>(row + at.col(unit) * sizeof(T)) = round_unit<T>(normed);
    }
  }
}

}  // namespace tilewire::cuda
