// A CTA sums a row of all ranks' partials, which are LL data, and normalises it.
// Included by rows.cu.
#pragma once

#include "backends/cuda/kernels/row_sums.hpp"
#include "backends/cuda/kernels/workers.cuh"

namespace tilewire::cuda {

/// Units of eight elements that a thread polls at once, and partials of each.
inline constexpr int kUnitsTogether = 4;
inline constexpr int kPartialsTogether = 2;

/// A thread's units of a row: `thread`, `thread` + `threads`, and so on. Their words are in shared memory.
struct RowUnits {
  int thread;
  int threads;
  int count;    ///< of the row
  uint4* row;   ///< the rank's own partial, if it is no LL data; then the sum, rounded
  uint4* gain;  ///< the weight of the norm
  uint4* bias;
  uint4* added_bias;  ///< rows that the epilogue adds
  uint4* added_residual;

  /// In shared memory `room`, where thread t uses bytes [16 t, 16 t + 16) of each block of 16 x threads bytes.
  __device__ RowUnits(uint8_t* room, int of_threads, int units)
      : thread(static_cast<int>(threadIdx.x)), threads(of_threads), count(units), row(reinterpret_cast<uint4*>(room)) {
    const int block = (count + threads - 1) / threads * threads;
    gain = row + block;
    bias = gain + block;
    added_bias = bias + block;
    added_residual = added_bias + block;
  }
  /// The row that a step of the epilogue adds.
  [[nodiscard]] __device__ uint4* added_by(EpilogueKind kind) const {
    return kind == EpilogueKind::residual ? added_residual : added_bias;
  }
  /// Call visit(unit) for each of the thread's units.
  template <class Visit>
  __device__ void for_each(const Visit& visit) const {
#pragma unroll 1
    for (int unit = thread; unit < count; unit += threads) visit(unit);
  }
};

/// Poll kPartialsTogether partials of kUnitsTogether units from `first` on, and add them in their order. False if they
/// do not come.
template <typename T>
__device__ inline bool add_partials(const SumOfPartials& of, const RowUnits& units, int row, int first,
                                    uint32_t partial, float (&sums)[kUnitsTogether][kEight], Patience& patience) {
  uint4 words[kPartialsTogether][kUnitsTogether] = {};
  const auto place = [&](int i, int u) {
    const SourceRecord& from = of.partials[partial + i];
    return from.data + (row * from.ld + (first + u * units.threads) * kEight) * 2;
  };
  const auto is_there = [&](int i, int u) {
    return partial + i < of.num_partials && first + u * units.threads < units.count;
  };
  const auto is_own = [&](int i) { return partial + i == of.own_partial; };
  uint32_t missing[kPartialsTogether];
  do {
#pragma unroll
    for (int i = 0; i < kPartialsTogether; ++i) {
      missing[i] = 0;
#pragma unroll
      for (int u = 0; u < kUnitsTogether; ++u) poll_words(place(i, u), is_there(i, u) && !is_own(i), words[i][u]);
    }
#pragma unroll
    for (int i = 0; i < kPartialsTogether; ++i) {
#pragma unroll
      for (int u = 0; u < kUnitsTogether; ++u) missing[i] |= missing_halves(words[i][u]);
    }
  } while ((missing[0] | missing[1]) != 0 && patience.lasts());
  if (patience.over) {
    patience.give_up(partial + (missing[0] != 0 ? 0 : 1));
    return false;
  }
  patience.has_begun();
#pragma unroll
  for (int i = 0; i < kPartialsTogether; ++i) {
#pragma unroll
    for (int u = 0; u < kUnitsTogether; ++u) {
      if (!is_there(i, u)) continue;
      if (is_own(i)) {
        words[i][u] = units.row[first + u * units.threads];
      } else {
        clear_words(place(i, u));
      }
      add_eight<T>(words[i][u], partial + i == 0, sums[u]);
    }
  }
  return true;
}

/// Apply the epilogue to eight elements of the row. Operands are in shared memory.
template <typename T>
__device__ inline void apply_steps(const SumOfPartials& of, const Bases& bases, const RowUnits& units, int unit,
                                   float (&values)[kEight]) {
#pragma unroll 1
  for (uint32_t step = 0; step < of.num_steps; ++step) {
    const EpilogueRecord& what = of.steps[step];
    if (what.kind == EpilogueKind::bias || what.kind == EpilogueKind::residual) {
      float operands[kEight];
      widen_eight<T>(units.added_by(what.kind)[unit], operands);
#pragma unroll
      for (int i = 0; i < kEight; ++i) values[i] += operands[i];
      continue;
    }
    // NOTE: the values rotate through values[0], so that one copy of the code serves all (finish_eight).
#pragma unroll 1
    for (int i = 0; i < kEight; ++i) {
      float first = values[0];
      apply_step(bases, what, 0, 0, first);
#pragma unroll
      for (int j = 1; j < kEight; ++j) values[j - 1] = values[j];
      values[kEight - 1] = first;
    }
  }
}

/// Sum the thread's units of the row, store them, and keep them.
template <typename T>
__device__ inline bool sum_row(const SumOfPartials& of, const Bases& bases, const RowUnits& units, int row,
                               Patience& patience) {
#pragma unroll 1
  for (int first = units.thread; first < units.count; first += kUnitsTogether * units.threads) {
    float sums[kUnitsTogether][kEight];
#pragma unroll 1
    for (uint32_t partial = 0; partial < of.num_partials; partial += kPartialsTogether) {
      if (!add_partials<T>(of, units, row, first, partial, sums, patience)) return false;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
    for (int u = 0; u < kUnitsTogether; ++u) {
      const int unit = first + u * units.threads;
      if (unit >= units.count) break;
      apply_steps<T>(of, bases, units, unit, sums[u]);
      const uint4 words = round_eight<T>(sums[u]);
      units.row[unit] = words;
#pragma unroll 1
      for (uint32_t i = 0; i < of.num_targets; ++i) {
        const TargetRecord& to = of.targets[i];
        *reinterpret_cast<uint4*>(resolve(bases, to.data) + (row * to.ld + unit * kEight) * 2) = words;
      }
    }
  }
  return true;
}

/// The sum of the threads' values, at all of them. `room`: a float for each warp.
__device__ inline float sum_over_warps(float value, int threads, float* room) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(0xFFFFFFFF, value, apart);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  ptx::cta_meet(1, threads);
  float sum = 0;
#pragma unroll 1
  for (int warp = 0; warp < threads / 32; ++warp) sum += room[warp];
  return sum;
}

/// Normalise the thread's units of the row, which are in shared memory.
template <typename T>
__device__ inline void normalise_row(const SumOfPartials& of, const Bases& bases, const RowUnits& units, int row) {
  __shared__ float room[2][32];
  const RowNorm& norm = of.norm;
  const auto count = static_cast<float>(units.count * kEight);
  float mean = 0;
  float sum = 0;
  const auto add_powers = [&](bool squares) {
    sum = 0;
    units.for_each([&](int unit) {
      float values[kEight];
      widen_eight<T>(units.row[unit], values);
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        const float value = values[i] - mean;
        sum += squares ? value * value : value;
      }
    });
    sum = sum_over_warps(sum, units.threads, room[squares ? 1 : 0]) / count;
  };
  if (norm.layer) {
    add_powers(false);
    mean = sum;
  }
  add_powers(true);
  const float factor = 1.0F / sqrtf(sum + norm.eps);
  units.for_each([&](int unit) {
    float values[kEight];
    float gains[kEight];
    float biases[kEight] = {};
    widen_eight<T>(units.row[unit], values);
    widen_eight<T>(units.gain[unit], gains);
    if (norm.layer) widen_eight<T>(units.bias[unit], biases);
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] = (values[i] - mean) * factor * gains[i] + biases[i];
    *reinterpret_cast<uint4*>(resolve(bases, norm.normed.data) + (row * norm.normed.ld + unit * kEight) * 2) =
        round_eight<T>(values);
  });
}

/// Start to copy the thread's units of a row to shared memory.
__device__ inline void fetch_row(const RowUnits& units, const std::byte* from, uint4* to) {
  units.for_each([&](int unit) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(ptx::shared_address(to + unit)),
                 "l"(from + int64_t{unit} * kEight * 2)
                 : "memory");
  });
}

/// The threads of `units`: sum row `row`, store it, and normalise it. They use barrier 1.
template <typename T>
__device__ inline void finish_row(const SumOfPartials& of, const WorkerLaunch& launch, const RowUnits& units, int row,
                                  uint64_t epoch) {
  // NOTE: operands come while the partials travel.
#pragma unroll 1
  for (uint32_t step = 0; step < of.num_steps; ++step) {
    const EpilogueRecord& what = of.steps[step];
    if (what.operand == nullptr) continue;
    const int64_t at = what.kind == EpilogueKind::bias ? 0 : row * what.ld;
    fetch_row(units, resolve(launch.bases, what.operand) + at * 2, units.added_by(what.kind));
  }
  if (of.norm.there) fetch_row(units, resolve(launch.bases, of.norm.weight.data), units.gain);
  if (of.norm.layer) fetch_row(units, resolve(launch.bases, of.norm.bias.data), units.bias);
  TaskSpan* sum = span_of(launch, of.first_name + row);
  Patience patience{launch.watch, of.first_name + row, epoch, threadIdx.x == 0};
  if (threadIdx.x == 0) patience.span = sum, note_taken(sum);
  const bool good = sum_row<T>(of, launch.bases, units, row, patience);
  if (ptx::cta_any(1, units.threads, !good)) return;
  if (threadIdx.x == 0) note_end(sum);
  if (threadIdx.x == 0 && of.signal != nullptr)
    atomicAdd(reinterpret_cast<unsigned long long*>(of.signal + row * of.signal_step), 1ull);
  if (!of.norm.there) return;
  TaskSpan* norm = span_of(launch, of.norm.first_name + row);
  if (threadIdx.x == 0) note_taken(norm), note_start(norm, blockIdx.x);
  normalise_row<T>(of, launch.bases, units, row);
  if (threadIdx.x == 0) note_end(norm);
}

}  // namespace tilewire::cuda
