// Sums across ranks in the CTAs that make the partials: each thread adds, finishes and stores units of 16 bytes.
// Included by gemv_loads.cuh and rows.cu.
#pragma once

#include "backends/cuda/kernels/sum_of_partials.hpp"
#include "backends/cuda/kernels/workers.cuh"

namespace tilewire::cuda {

/// Elements of a unit: 16 bytes.
template <typename T>
constexpr int kUnit = 16 / sizeof(T);

/// Convert a unit to fp32, and back. NOTE: a NaN becomes the one that arithmetic makes, since all ones mean missing LL
/// data.
template <typename T>
__device__ __forceinline__ void widen_unit(const uint4& words, float (&values)[kUnit<T>]) {
  if constexpr (sizeof(T) == 2) {
    widen_eight<T>(words, values);
  } else {
    values[0] = __uint_as_float(words.x), values[1] = __uint_as_float(words.y);
    values[2] = __uint_as_float(words.z), values[3] = __uint_as_float(words.w);
  }
}
template <typename T>
__device__ __forceinline__ uint4 round_unit(const float (&values)[kUnit<T>]) {
  if constexpr (sizeof(T) == 2) {
    return round_eight<T>(values);
  } else {
    return make_uint4(bits_to_publish(values[0]), bits_to_publish(values[1]), bits_to_publish(values[2]),
                      bits_to_publish(values[3]));
  }
}
/// Add a unit to the sums; the first term replaces them.
template <typename T>
__device__ __forceinline__ void add_unit(const uint4& words, bool first, float (&sums)[kUnit<T>]) {
  float values[kUnit<T>];
  widen_unit<T>(words, values);
#pragma unroll
  for (int i = 0; i < kUnit<T>; ++i) sums[i] = first ? values[i] : __fadd_rn(sums[i], values[i]);
}
/// Not 0 if an element of a unit of LL data is missing.
template <typename T>
__device__ __forceinline__ uint32_t missing_elements(const uint4& words) {
  if constexpr (sizeof(T) == 2) {
    return missing_halves(words);
  } else {
    return max(max(words.x, words.y), max(words.z, words.w)) == ~0U ? 1 : 0;
  }
}

/// A thread's units of columns in one row of the result: `count` of at most kUnits.
template <int kUnits>
struct ThreadUnits {
  int row;
  int first_col;
  int apart;  ///< columns from unit to unit
  int count;

  [[nodiscard]] __device__ int64_t col(int unit) const { return first_col + int64_t{unit} * apart; }
  [[nodiscard]] __device__ bool has(int unit) const { return unit < count; }
};

/// What a thread loads for a unit while the partials travel: the rows that the epilogue adds, and the norm's weight and
/// bias.
struct Operands {
  uint4 bias;
  uint4 residual;
  uint4 norm_weight;
  uint4 norm_bias;
};

/// Send a thread's units of the partial to the peers. `copy`: copy_of_call.
template <typename T, int kUnits>
__device__ __forceinline__ void send_units(const Exchange& exchange, const Bases& bases, uint64_t copy,
                                           const ThreadUnits<kUnits>& at, const uint4 (&mine)[kUnits]) {
#pragma unroll 1
  for (uint32_t i = 0; i < exchange.num_peers; ++i) {
    const TargetRecord& to = exchange.peers[i];
    std::byte* row = resolve(bases, to.data, copy) + at.row * to.ld * sizeof(T);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      if (at.has(unit)) publish(row + at.col(unit) * sizeof(T), mine[unit]);
    }
  }
}

template <typename T>
__device__ __forceinline__ Operands load_operands(const SumOfPartials& of, const Bases& bases, int row, int64_t col) {
  Operands words{};
  const auto load = [&](const std::byte* from, int64_t at) {
    return *reinterpret_cast<const uint4*>(resolve(bases, from) + at * sizeof(T));
  };
#pragma unroll 1
  for (uint32_t step = 0; step < of.num_steps && of.fetches; ++step) {
    const EpilogueRecord& what = of.steps[step];
    if (what.kind == EpilogueKind::bias) words.bias = load(what.operand, col);
    if (what.kind == EpilogueKind::residual) words.residual = load(what.operand, row * what.ld + col);
  }
  if (of.norm.there) words.norm_weight = load(of.norm.weight.data, col);
  if (of.norm.there && of.norm.layer) words.norm_bias = load(of.norm.bias.data, col);
  return words;
}

/// Apply the sum's epilogue to a unit.
template <typename T>
__device__ __forceinline__ void apply_steps(const SumOfPartials& of, const Bases& bases, const Operands& operands,
                                            int row, int col, float (&values)[kUnit<T>]) {
#pragma unroll 1
  for (uint32_t step = 0; step < of.num_steps; ++step) {
    const EpilogueRecord& what = of.steps[step];
    const bool adds = what.kind == EpilogueKind::bias || what.kind == EpilogueKind::residual;
    if (adds && of.fetches) {
      float added[kUnit<T>];
      widen_unit<T>(what.kind == EpilogueKind::bias ? operands.bias : operands.residual, added);
#pragma unroll
      for (int i = 0; i < kUnit<T>; ++i) values[i] += added[i];
      continue;
    }
    // NOTE: the values rotate through values[0], so that one copy of the code serves all (finish_eight).
#pragma unroll 1
    for (int i = 0; i < kUnit<T>; ++i) {
      float first = values[0];
      apply_step(bases, what, row, col + i, first);
#pragma unroll
      for (int j = 1; j < kUnit<T>; ++j) values[j - 1] = values[j];
      values[kUnit<T> - 1] = first;
    }
  }
}

/// Add the partials of all ranks in their order; `mine` is the rank's own. False if the peers' data do not come.
template <typename T, int kUnits>
__device__ __forceinline__ bool add_partials(const SumOfPartials& of, const Bases& bases, uint64_t copy,
                                             const ThreadUnits<kUnits>& at, const uint4 (&mine)[kUnits],
                                             float (&values)[kUnits][kUnit<T>], Patience& patience) {
  constexpr int kPolls = kUnits == 4 ? 1 : 2;  // partials whose polls are in flight together
#pragma unroll 1
  for (uint32_t first = 0; first < of.num_partials; first += kPolls) {
    const auto place = [&](int i, int unit) {
      const SourceRecord& from = of.partials[min(first + i, of.num_partials - 1u)];
      return resolve(bases, from.data, copy) + (at.row * from.ld + at.col(unit)) * sizeof(T);
    };
    const auto is_awaited = [&](int i, int unit) {
      return first + i < of.num_partials && first + i != of.own_partial && at.has(unit);
    };
    uint4 words[kPolls][kUnits] = {};
    uint32_t missing[kPolls];
    uint32_t any = 0;
    do {
#pragma unroll
      for (int i = 0; i < kPolls; ++i) {
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) poll_words(place(i, unit), is_awaited(i, unit), words[i][unit]);
      }
      any = 0;
#pragma unroll
      for (int i = 0; i < kPolls; ++i) {
        missing[i] = 0;
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) missing[i] |= missing_elements<T>(words[i][unit]);
        any |= missing[i];
      }
    } while (any != 0 && patience.lasts());
    if (patience.over) {
      uint32_t source = first;
#pragma unroll
      for (int i = kPolls - 1; i >= 0; --i) source = missing[i] != 0 ? first + i : source;
      patience.give_up(source);
      return false;
    }
#pragma unroll
    for (int i = 0; i < kPolls; ++i) {
      if (first + i >= of.num_partials) break;
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        if (!at.has(unit)) continue;
        const bool own = first + i == of.own_partial;
        if (!own) clear_words(place(i, unit));
        add_unit<T>(own ? mine[unit] : words[i][unit], first + i == 0, values[unit]);
      }
    }
  }
  patience.has_begun();
  return true;
}

/// A thread's units: add the partials, apply the epilogue, store the results, which stay in `values`, rounded. False if
/// the peers' data do not come.
template <typename T, int kUnits>
__device__ __forceinline__ bool sum_units(const SumOfPartials& of, const Bases& bases, uint64_t copy,
                                          const ThreadUnits<kUnits>& at, const uint4 (&mine)[kUnits],
                                          const Operands (&operands)[kUnits], float (&values)[kUnits][kUnit<T>],
                                          Patience& patience) {
  if (!add_partials<T>(of, bases, copy, at, mine, values, patience)) return false;
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    if (!at.has(unit)) break;
    const int64_t col = at.col(unit);
    apply_steps<T>(of, bases, operands[unit], at.row, static_cast<int>(col), values[unit]);
    const uint4 words = round_unit<T>(values[unit]);
#pragma unroll 1
    for (uint32_t i = 0; i < of.num_targets; ++i) {
      const TargetRecord& to = of.targets[i];
      *reinterpret_cast<uint4*>(resolve(bases, to.data) + (at.row * to.ld + col) * sizeof(T)) = words;
    }
    widen_unit<T>(words, values[unit]);
  }
  return true;
}

}  // namespace tilewire::cuda
