// Norms behind sums of LL data: each CTA normalises its own columns of some rows, and the CTAs with the other columns
// exchange the moments of theirs. Included by gemv.cu and rows.cu.
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

__device__ __forceinline__ void publish_moments(Moments* to, const Spread& of, uint32_t call) {
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

/// The rows and columns that a CTA normalises. `parts` CTAs have the columns of a row: `part_cols` each, the last one
/// perhaps fewer.
struct NormPlace {
  Moments* moments;  ///< of part p of row r of the result: moments[r * parts + p]
  int parts;
  int part_cols;
  int cols;  ///< of a row
  int first_row;
  int rows;  ///< of the CTA
  int part;
};

/// Most rows of a CTA, and most spreads of a row that its threads have.
constexpr int kNormRows = 16;
constexpr int kSlots = 16;

/// Threads that collect the moments of a row.
constexpr int kCollectors = 16;

/// kCollectors neighbouring threads: the spread of a row, from the moments of all parts; at the first of them. False if
/// they do not come. Each thread polls kTogether moments at once.
template <int kTogether>
__device__ __forceinline__ bool spread_of_row(const NormPlace& place, int row, bool layer, uint32_t call, Spread& of,
                                              Patience& patience) {
  const Moments* from = place.moments + (place.first_row + row) * place.parts;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) % kCollectors; first < place.parts; first += kCollectors * kTogether) {
    MomentWords words[kTogether];
    const auto is_there = [&](int i) { return first + i * kCollectors < place.parts; };
    bool missing = true;
    do {
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        poll_moments(from + first + i * kCollectors, is_there(i) && !words[i].are_of(call), words[i]);
      missing = false;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) missing = missing || (is_there(i) && !words[i].are_of(call));
    } while (missing && patience.lasts());
    if (patience.over) {
      patience.give_up(0);  // the rows of the norm
      return false;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int part = first + i * kCollectors;
      if (is_there(i)) of.add(words[i].spread(min(place.part_cols, place.cols - part * place.part_cols)), layer);
    }
  }
  return true;
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

/// All threads of the CTA: normalise its columns of the sum, whose rounded elements are in the threads' `values`.
/// `good`: the thread's sum is there. kOneRow: the CTA has one row; otherwise each thread has one unit.
template <typename T, int kUnits, bool kOneRow>
__device__ __forceinline__ void normalise_columns(const NormPlace& place, const RowNorm& norm,
                                                  const WorkerLaunch& launch, const ThreadUnits<kUnits>& at, bool good,
                                                  const Operands (&operands)[kUnits],
                                                  const float (&values)[kUnits][kEight], uint64_t epoch) {
  constexpr int kPolled = kOneRow ? 1 : 8;  // a row has few parts, or as many as there are CTAs
  __shared__ Spread of_slots[kSlots][kNormRows];
  __shared__ Spread of_rows[kNormRows];
  const uint32_t call = static_cast<uint32_t>(epoch) | 0x80000000;  // never that of zeroed memory
  const auto thread = static_cast<int>(threadIdx.x);
  TaskSpan* span = thread == 0 ? span_of(launch, norm.first_name + blockIdx.x) : nullptr;
  Spread mine;
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    if (good && at.has(unit)) mine.add(spread_of(values[unit], norm.layer), norm.layer);
  }
  if constexpr (kOneRow) {
    add_over_threads<32>(mine, norm.layer);
    if (thread % 32 == 0) of_slots[thread / 32][0] = mine;
  } else if (at.has(0)) {
    of_slots[(at.first_col - place.part * place.part_cols) / kEight][at.row - place.first_row] = mine;
  }
  if (ptx::cta_any(1, blockDim.x, !good)) return;
  note_taken(span), note_start(span, blockIdx.x);
  if (thread < place.rows) {
    const int own_cols = min(place.part_cols, place.cols - place.part * place.part_cols);
    const int slots = kOneRow ? static_cast<int>(blockDim.x) / 32 : own_cols / kEight;
    Spread own;
#pragma unroll 4
    for (int slot = 0; slot < slots; ++slot) own.add(of_slots[slot][thread], norm.layer);
    if (place.parts > 1) {
      publish_moments(place.moments + (place.first_row + thread) * place.parts + place.part, own, call);
    } else {
      of_rows[thread] = own;
    }
  }
  if (place.parts > 1) {
    Patience patience{launch.watch, norm.first_name + blockIdx.x, epoch, thread == 0};
    Spread all;
    const int row = thread / kCollectors;
    if (row < place.rows) good = spread_of_row<kPolled>(place, row, norm.layer, call, all, patience);
    __syncwarp();
    add_over_threads<kCollectors>(all, norm.layer);
    if (row < place.rows && thread % kCollectors == 0) of_rows[row] = all;
  }
  if (ptx::cta_any(1, blockDim.x, !good)) return;
  if (at.has(0)) store_normed<T>(norm, launch.bases, of_rows[at.row - place.first_row], at, operands, values);
  note_end(span);
}

}  // namespace tilewire::cuda
