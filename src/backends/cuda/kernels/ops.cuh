// The ops of worker CTAs: copies, sums in list order, fills, small products. All threads of a warpgroup call them.
// Used by workers.cuh.
#pragma once

#include <type_traits>

#include "backends/cuda/kernels/copy_op.cuh"
#include "backends/cuda/kernels/multiply.cuh"
#include "backends/cuda/kernels/norm_op.cuh"

namespace tilewire::cuda {

__device__ inline bool sums_in_eights(const WorkerTable& table, const OpRecord& step) {
  bool good = step.cols % kEight == 0;
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_sources; ++i) {
    const SourceRecord& from = table.sources[step.first_source + i];
    good = good && in_eights(from.data, from.ld, from.dtype, step.rows);
  }
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    good = good && in_eights(to.data, to.ld, to.dtype, to.rows);
  }
  return good;
}

/// Whether a sum has the usual form: sources of one 16-bit dtype, all rows aligned to 16 bytes.
__device__ inline bool sums_at_once(const WorkerTable& table, const OpRecord& step) {
  bool good = true;
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_sources; ++i) {
    const SourceRecord& from = table.sources[step.first_source + i];
    good = good && from.dtype == table.sources[step.first_source].dtype &&
           (from.dtype == DType::bf16 || from.dtype == DType::fp16);
  }
  return good && sums_in_eights(table, step);
}

/// Sources whose loads are in flight together.
constexpr uint32_t kTogether = 4;

/// Load eight elements of each of `count` sources. With kPolls: poll until all have arrived, then set them back to
/// ones. NOTE: an op with more than four sources polls the others after these four.
template <bool kPolls>
__device__ inline void load_units(const SourceRecord* sources, uint32_t first, uint32_t count, uint32_t row,
                                  uint32_t col, uint4 (&words)[kTogether], Patience& patience) {
  std::byte* from[kTogether];
#pragma unroll
  for (uint32_t i = 0; i < kTogether; ++i) {
    const SourceRecord& source = sources[first + (i < count ? i : 0)];
    from[i] = source.data + (row * source.ld + col) * 2;
    words[i] = make_uint4(0, 0, 0, 0);
  }
  uint32_t missing[kTogether] = {};
  do {
#pragma unroll
    for (uint32_t i = 0; i < kTogether; ++i) {
      if constexpr (kPolls) {
        poll_words(from[i], i < count, words[i]);
      } else if (i < count) {
        words[i] = *reinterpret_cast<const uint4*>(from[i]);
      }
    }
#pragma unroll
    for (uint32_t i = 0; kPolls && i < kTogether; ++i) missing[i] = missing_halves(words[i]);
  } while ((missing[0] | missing[1] | missing[2] | missing[3]) != 0 && patience.lasts());
  if (!kPolls) return;
  if (patience.over) [[unlikely]] {
    return patience.give_up(first + (missing[0] != 0 ? 0 : missing[1] != 0 ? 1 : missing[2] != 0 ? 2 : 3));
  }
  patience.has_begun();
#pragma unroll
  for (uint32_t i = 0; i < kTogether; ++i) {
    if (i < count) clear_words(from[i]);
  }
}

/// reduce_op for sums_at_once of type T; each thread takes kUnits units of eight elements at once. NOTE: keep the code
/// for one unit short: it runs between the arrival of the last partial and the end of a call, and instructions that are
/// not in the SM's cache come from memory.
template <typename T, bool kPolls, uint32_t kUnits>
__device__ inline void reduce_at_once(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                      Patience& patience) {
  const SourceRecord* sources = table.sources + step.first_source;
  const auto per_row = static_cast<uint32_t>(step.cols / kEight);
  const auto total = static_cast<uint64_t>(step.rows) * per_row;
  const auto end = static_cast<uint32_t>(slice.end(total));
#pragma unroll 1
  for (uint32_t at = static_cast<uint32_t>(slice.begin(total)) + slice.thread; at < end; at += kUnits * slice.threads) {
    float sums[kUnits][kEight];
#pragma unroll 1
    for (uint32_t first = 0; first < step.num_sources; first += kTogether) {
      const uint32_t count = min(kTogether, step.num_sources - first);
      uint4 words[kUnits][kTogether];
#pragma unroll
      for (uint32_t unit = 0; unit < kUnits; ++unit) {
        const uint32_t here = kUnits == 1 ? at : min(at + unit * slice.threads, end - 1);
        load_units<kPolls>(sources, first, count, here / per_row, here % per_row * kEight, words[unit], patience);
      }
      if (kPolls && patience.over) return;
#pragma unroll
      for (uint32_t unit = 0; unit < kUnits; ++unit) {
#pragma unroll
        for (uint32_t i = 0; i < kTogether; ++i) {
          if (i < count) add_eight<T>(words[unit][i], first + i == 0, sums[unit]);
        }
      }
    }
#pragma unroll
    for (uint32_t unit = 0; unit < kUnits; ++unit) {
      const uint32_t here = at + unit * slice.threads;
      if (here < end) finish_eight<T>(table, step, here / per_row, here % per_row * kEight, sums[unit]);
    }
  }
}

template <typename T>
__device__ inline void reduce_at_once(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                      Patience& patience) {
  constexpr uint32_t kFewWaves = 4;
  if (step.polls) return reduce_at_once<T, true, 1>(table, step, slice, patience);
  const bool few = step.rows * (step.cols / kEight) / slice.count <= kFewWaves * slice.threads;
  return few ? reduce_at_once<T, false, 1>(table, step, slice, patience)
             : reduce_at_once<T, false, 2>(table, step, slice, patience);
}

/// Sum the sources in their order, in fp32.
__device__ inline void reduce_op(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                 Patience& patience) {
  if (sums_at_once(table, step)) {
    const bool bf16 = table.sources[step.first_source].dtype == DType::bf16;
    return bf16 ? reduce_at_once<__nv_bfloat16>(table, step, slice, patience)
                : reduce_at_once<__half>(table, step, slice, patience);
  }
  const bool eights = !step.polls && sums_in_eights(table, step);
  const int width = eights ? kEight : 1;
  const auto per_row = static_cast<uint64_t>(step.cols / width);
  const SourceRecord* sources = table.sources + step.first_source;
  const uint64_t total = step.rows * per_row;
#pragma unroll 1
  for (uint64_t at = slice.begin(total) + slice.thread; at < slice.end(total); at += slice.threads) {
    const auto row = static_cast<int>(at / per_row);
    const auto col = static_cast<int>(at % per_row) * width;
    float sums[kEight] = {};
#pragma unroll 1
    for (uint32_t s = 0; s < step.num_sources; ++s) {
      const SourceRecord& from = sources[s];
      std::byte* data = from.data + (row * from.ld + col) * element_bytes(from.dtype);
      float values[kEight];
      if (eights) {
        load_eight(data, from.dtype, values);
      } else {
        values[0] = step.polls ? take_element(data, from.dtype, s, patience) : load_element(data, from.dtype);
        if (patience.over) return;
      }
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        if (i >= width) break;
        sums[i] = s == 0 ? values[i] : __fadd_rn(sums[i], values[i]);
      }
    }
    eights ? finish_eight<__nv_bfloat16>(table, step, row, col, sums) : finish_element(table, step, row, col, sums[0]);
  }
}

__device__ inline void fill_op(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  const int wide = sums_in_eights(table, step) ? kEight : 1;
  const uint64_t per_row = step.cols / wide, total = step.rows * per_row;
#pragma unroll 1
  for (uint64_t at = slice.begin(total) + slice.thread; at < slice.end(total); at += slice.threads) {
    const auto row = static_cast<int>(at / per_row), col = static_cast<int>(at % per_row) * wide;
    const float v = step.value;
    float values[kEight] = {v, v, v, v, v, v, v, v};
    wide == 1 ? finish_element(table, step, row, col, v) : finish_eight<__nv_bfloat16>(table, step, row, col, values);
  }
}

__device__ inline void norm_op(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                               const Warpgroup& warpgroup) {
  OpRecord rows = step;
  if (is_one_byte(table.targets[step.first_target].dtype)) rows.num_targets = 1;  // not the scales
  sums_in_eights(table, rows) && step.depth % kEight == 0 && step.first_col % kEight == 0
      ? normalise_rows<true>(table, step, slice, warpgroup)
      : normalise_rows<false>(table, step, slice, warpgroup);
}

/// The ops of a kernel in place of those of run_op: none.
struct NoMoreOps {};

/// Execute an op. `multiply` needs kOpThreads threads. NOTE: kernels of tensor cores compute nothing here, and a kernel
/// with other ops (`More`) executes all by itself: more code would cost the ops registers.
template <bool kComputes, class More>
__device__ inline void run_op(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                              const Warpgroup& warpgroup, BulkRoom& room, Patience& patience) {
  if constexpr (!std::is_same_v<More, NoMoreOps>) return More::run(table, step, slice, warpgroup, room, patience);
  switch (step.code) {
    case OpCode::copy:
      if (copies_vectors(table, step)) return copy_op(table, step, slice, room);
      [[fallthrough]];  // a sum of one source
    case OpCode::reduce:
      return reduce_op(table, step, slice, patience);
    case OpCode::fill:
      return fill_op(table, step, slice);
    case OpCode::multiply:
      if constexpr (kComputes) multiply_op(table, step);
      return;
    case OpCode::norm:
      if constexpr (kComputes) norm_op(table, step, slice, warpgroup);
      return;
    case OpCode::route:
    case OpCode::group_rows:
    case OpCode::select:
    case OpCode::sum_experts:
    case OpCode::sync:
    case OpCode::doorbell:
      return;
  }
}

}  // namespace tilewire::cuda
