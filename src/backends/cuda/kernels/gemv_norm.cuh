// Norms behind the GEMV kernel's sums: each CTA normalises its own columns, and all CTAs exchange the moments of
// theirs. Included by gemv.cu.
#pragma once

#include "backends/cuda/kernels/gemv.hpp"
#include "backends/cuda/kernels/workers.cuh"

namespace tilewire::cuda {

/// What a thread loads while the partials travel: its units of the rows that the epilogue adds, and of the norm's
/// weight and bias.
struct Operands {
  uint4 bias;
  uint4 residual;
  uint4 norm_weight;
  uint4 norm_bias;
};

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

__device__ inline Spread spread_of(const float (&values)[kEight], bool layer) {
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

__device__ inline void publish_moments(Moments* to, const Spread& of, uint32_t call) {
  const uint64_t mean = __float_as_uint(of.mean) | uint64_t{call} << 32;
  const uint64_t squares = __float_as_uint(of.squares) | uint64_t{call} << 32;
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(mean), "l"(squares) : "memory");
}

/// A CTA's moments as they travel: mean and squares, each below the number of the call.
struct MomentWords {
  uint64_t mean = 0;
  uint64_t squares = 0;

  __device__ bool are_of(uint32_t call) const { return mean >> 32 == call && squares >> 32 == call; }
  __device__ Spread spread(int count) const {
    return {__uint_as_float(static_cast<uint32_t>(mean)), __uint_as_float(static_cast<uint32_t>(squares)),
            static_cast<float>(count)};
  }
};

/// Poll moments, if `wanted`. NOTE: a predicated load, no jump, so that the polls of several CTAs are in flight at
/// once.
__device__ inline void poll_moments(const Moments* from, bool wanted, MomentWords& words) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.u32 p, %3, 0;\n"
      "@p ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];\n}"
      : "+l"(words.mean), "+l"(words.squares)
      : "l"(from), "r"(static_cast<uint32_t>(wanted))
      : "memory");
}

/// Threads that collect the moments of a row.
constexpr int kCollectors = 16;

/// kCollectors neighbouring threads: the spread of a row, from the moments of all CTAs' columns; at the first of them.
/// False if they do not come.
__device__ inline bool spread_of_row(const GemvTable& table, int row, uint32_t call, Spread& of, Patience& patience) {
  const bool layer = table.sum.norm.layer;
  const auto ctas = static_cast<int>(table.ctas);
  constexpr int kTogether = 8;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) % kCollectors; first < ctas; first += kCollectors * kTogether) {
    MomentWords words[kTogether];
    bool missing = true;
    do {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int cta = first + i * kCollectors;
        poll_moments(table.moments + row * ctas + cta, cta < ctas && !words[i].are_of(call), words[i]);
      }
      missing = false;
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        missing = missing || (first + i * kCollectors < ctas && !words[i].are_of(call));
    } while (missing && patience.lasts());
    if (patience.over) {
      patience.give_up(0);  // the rows of the norm
      return false;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int cta = first + i * kCollectors;
      if (cta < ctas) of.add(words[i].spread(min(table.tile_cols, table.cols - cta * table.tile_cols)), layer);
    }
  }
  return true;
}

/// Add the spreads of kCollectors neighbouring threads of a warp; the first of them has the result.
__device__ inline void add_over_collectors(Spread& of, bool layer) {
#pragma unroll
  for (int apart = kCollectors / 2; apart > 0; apart /= 2) {
    const Spread other{__shfl_down_sync(0xFFFFFFFF, of.mean, apart, kCollectors),
                       __shfl_down_sync(0xFFFFFFFF, of.squares, apart, kCollectors),
                       __shfl_down_sync(0xFFFFFFFF, of.count, apart, kCollectors)};
    of.add(other, layer);
  }
}

/// A thread's eight elements of the CTA's columns.
struct Unit {
  int row;
  int first_col;  ///< of the CTA
  int cols;       ///< of the CTA
  int col;        ///< of the unit, from the CTA's first one on
  bool there;     ///< the thread has one
};

/// All threads of the CTA: normalise its columns of the sum, whose rounded elements are in the threads' `values`.
/// `good`: the thread's sum is there. The CTAs exchange the moments of their columns.
template <typename T>
__device__ inline void normalise_columns(const GemvTable& table, const WorkerLaunch& launch, const Unit& unit,
                                         bool good, const Operands& operands, const float (&values)[kEight],
                                         uint64_t epoch) {
  __shared__ float means[kMostGemvCols / kEight][kMostGemvRows];
  __shared__ float squares[kMostGemvCols / kEight][kMostGemvRows];
  __shared__ Spread of_rows[kMostGemvRows];
  const RowNorm& norm = table.sum.norm;
  const uint32_t call = static_cast<uint32_t>(epoch) | 0x80000000;  // never that of zeroed memory
  const auto thread = static_cast<int>(threadIdx.x);
  TaskSpan* span = span_of(launch, norm.first_name + blockIdx.x);
  if (unit.there && good) {
    const Spread mine = spread_of(values, norm.layer);
    means[unit.col / kEight][unit.row] = mine.mean;
    squares[unit.col / kEight][unit.row] = mine.squares;
  }
  if (ptx::cta_any(1, blockDim.x, !good)) return;
  if (thread == 0) note_taken(span), note_start(span, blockIdx.x);
  if (thread < table.rows) {
    Spread own;
#pragma unroll 4
    for (int each = 0; each < unit.cols / kEight; ++each)
      own.add({means[each][thread], squares[each][thread], kEight}, norm.layer);
    publish_moments(table.moments + thread * static_cast<int>(table.ctas) + blockIdx.x, own, call);
  }
  Patience patience{launch.watch, norm.first_name + blockIdx.x, epoch, thread == 0};
  Spread all;
  const int collected = thread / kCollectors;
  if (collected < table.rows) good = spread_of_row(table, collected, call, all, patience);
  __syncwarp();
  add_over_collectors(all, norm.layer);
  if (collected < table.rows && thread % kCollectors == 0) of_rows[collected] = all;
  if (ptx::cta_any(1, blockDim.x, !good)) return;
  if (unit.there) {
    const Spread& whole = of_rows[unit.row];
    const float factor = 1.0F / sqrtf(whole.squares / whole.count + norm.eps);
    float gains[kEight];
    float biases[kEight];
    widen_eight<T>(operands.norm_weight, gains);
    widen_eight<T>(operands.norm_bias, biases);
    float normed[kEight];
#pragma unroll
    for (int i = 0; i < kEight; ++i)
      normed[i] = (values[i] - whole.mean) * factor * gains[i] + (norm.layer ? biases[i] : 0);
    *reinterpret_cast<uint4*>(resolve(launch.bases, norm.normed.data) +
                              (unit.row * norm.normed.ld + unit.first_col + unit.col) * 2) = round_eight<T>(normed);
  }
  if (thread == 0) note_end(span);
}

}  // namespace tilewire::cuda
