// Norms behind sums of LL data: each CTA normalises its own columns of all rows, and the CTAs exchange the moments of
// theirs. Included by gemv_kernel.cuh.
#pragma once

#include "backends/cuda/kernels/spread.cuh"

namespace tilewire::cuda {

__device__ __forceinline__ void publish_moments(Moments* to, const Spread& of, uint32_t call) {
  const uint64_t mean = __float_as_uint(of.mean_or_most) | uint64_t{call} << 32;
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

/// The columns that a CTA normalises, of all rows. `parts` CTAs have the columns of a row: `part_cols` each, the last
/// one perhaps fewer.
struct NormPlace {
  Moments* moments;  ///< of part p of row r of the result: moments[r * parts + p]
  int parts;
  int part_cols;
  int cols;  ///< of a row
  int rows;
  int part;
};

/// Most rows, and most spreads of a row that the threads of a CTA have.
constexpr int kNormRows = 16;
constexpr int kSlots = 16;

/// Threads that collect the moments of a row.
constexpr int kCollectors = 16;

/// kCollectors neighbouring threads: the spread of a row, from the moments of all parts; at the first of them. False if
/// they do not come.
__device__ __forceinline__ bool spread_of_row(const NormPlace& place, int row, bool layer, uint32_t call, Spread& of,
                                              Patience& patience) {
  constexpr int kTogether = 8;  // moments that a thread polls at once
  const Moments* from = place.moments + row * place.parts;
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

/// All threads of the CTA: normalise its columns of the sum. Each thread has one unit, whose rounded elements are in
/// `values`. `good`: the thread's sum is there.
template <typename T>
__device__ __forceinline__ void normalise_columns(const NormPlace& place, const RowNorm& norm,
                                                  const WorkerLaunch& launch, const ThreadUnits<1>& at, bool good,
                                                  const Operands (&operands)[1], const float (&values)[1][kUnit<T>],
                                                  uint64_t epoch) {
  __shared__ Spread of_slots[kSlots][kNormRows];
  __shared__ Spread of_rows[kNormRows];
  const uint32_t call = static_cast<uint32_t>(epoch) | 0x80000000;  // never that of zeroed memory
  const auto thread = static_cast<int>(threadIdx.x);
  TaskSpan* span = thread == 0 ? span_of(launch, norm.first_name + blockIdx.x) : nullptr;
  const int own_cols = min(place.part_cols, place.cols - place.part * place.part_cols);
  if (good && at.has(0)) {
    const int slot = (at.first_col - place.part * place.part_cols) / kUnit<T>;
    of_slots[slot][at.row] = spread_of<T>(norm, operands[0], values[0]);
  }
  if (ptx::cta_any(1, blockDim.x, !good)) return;
  note_taken(span), note_start(span, blockIdx.x);
  if (thread < place.rows) {
    const int slots = own_cols / kUnit<T>;
    Spread own;
#pragma unroll 4
    for (int slot = 0; slot < slots; ++slot) own.add(of_slots[slot][thread], norm.layer);
    if (place.parts > 1) {
      publish_moments(place.moments + thread * place.parts + place.part, own, call);
    } else {
      of_rows[thread] = own;
    }
  }
  if (place.parts > 1) {
    Patience patience{launch.watch, norm.first_name + blockIdx.x, epoch, thread == 0};
    Spread all;
    const int row = thread / kCollectors;
    if (row < place.rows) good = spread_of_row(place, row, norm.layer, call, all, patience);
    __syncwarp();
    add_over_threads<kCollectors>(all, norm.layer);
    if (row < place.rows && thread % kCollectors == 0) of_rows[row] = all;
  }
  if (ptx::cta_any(1, blockDim.x, !good)) return;
  if (at.has(0)) store_normed<T>(norm, launch.bases, of_rows[at.row], at, operands, values);
  note_end(span);
}

}  // namespace tilewire::cuda
