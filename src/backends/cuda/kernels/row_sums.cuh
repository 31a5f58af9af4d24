// Sums of rows by warps: of the rows of tokens by their weights, and of the partials of ranks.
// Used by expert_ops.cuh. NOTE: loads have no conditions; a load under a condition waits for the load before it.
#pragma once

#include "backends/cuda/kernels/copy_op.cuh"
#include "backends/cuda/kernels/ll_protocol.cuh"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// Units of eight columns that a lane of a warp has in a row: every 32nd.
constexpr int kUnitsOfLane = 4;

using RowWords = uint4[kUnitsOfLane];
using RowValues = float[kUnitsOfLane][kEight];

/// A warp's parts of an op: each is 32 x kUnitsOfLane units of a row.
struct RowParts {
  uint32_t per_row;
  uint32_t at;  ///< the warp's first part
  uint32_t end;
  uint32_t stride;
  int last;  ///< unit of a row

  __device__ RowParts(const OpRecord& step, const Slice& slice)
      : per_row((step.cols / kEight + 32 * kUnitsOfLane - 1) / (32 * kUnitsOfLane)),
        stride(slice.threads / 32),
        last(step.cols / kEight - 1) {
    const uint64_t total = static_cast<uint64_t>(step.rows) * per_row;
    at = static_cast<uint32_t>(slice.begin(total)) + slice.thread / 32;
    end = static_cast<uint32_t>(slice.end(total));
  }
  [[nodiscard]] __device__ int row(uint32_t part) const { return static_cast<int>(part / per_row); }
  /// The lane's first unit.
  [[nodiscard]] __device__ int unit(uint32_t part) const {
    return static_cast<int>(part % per_row) * 32 * kUnitsOfLane + static_cast<int>(threadIdx.x) % 32;
  }
};

/// Load a lane's units of a row; beyond the row its last unit.
__device__ __forceinline__ void load_row(const std::byte* row, int unit, int last, RowWords& words) {
#pragma unroll
  for (int u = 0; u < kUnitsOfLane; ++u)
    words[u] = __ldcg(reinterpret_cast<const uint4*>(row) + min(unit + 32 * u, last));
}

/// Add a row, times its weight. Products and sums are rounded one by one, as on the host.
template <typename T>
__device__ __forceinline__ void add_row(const RowWords& words, float weight, RowValues& sums) {
#pragma unroll
  for (int u = 0; u < kUnitsOfLane; ++u) {
    float values[kEight];
    widen_eight<T>(words[u], values);
#pragma unroll
    for (int i = 0; i < kEight; ++i) sums[u][i] = __fadd_rn(sums[u][i], __fmul_rn(weight, values[i]));
  }
}

/// Store eight sums, 16 bytes at a time. `T`: the usual dtype of targets.
template <typename T>
__device__ __forceinline__ void store_sums(std::byte* at, const TargetRecord& to, const float (&sums)[kEight]) {
  const auto put = [&to](std::byte* here, const uint4& words) {
    if (to.mode == StoreMode::accumulate) return add_words(here, to.dtype, words);
    *reinterpret_cast<uint4*>(here) = words;
  };
  if (to.dtype != DType::fp32) return put(at, round_eight<T>(sums));
  const auto four = [&](int i) {
    return make_uint4(__float_as_uint(sums[i]), __float_as_uint(sums[i + 1]), __float_as_uint(sums[i + 2]),
                      __float_as_uint(sums[i + 3]));
  };
  put(at, four(0));
  put(at + 16, four(4));
}

/// Store a lane's units of a row to every target.
template <typename T>
__device__ __forceinline__ void store_row(const WorkerTable& table, const OpRecord& step, int row, int unit, int last,
                                          const RowValues& sums) {
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    if (row < to.first_row || row >= to.first_row + to.rows) continue;
    const int size = element_bytes(to.dtype);
    std::byte* first = to.data + (row - to.first_row) * to.ld * size;
#pragma unroll
    for (int u = 0; u < kUnitsOfLane; ++u) {
      if (unit + 32 * u <= last) store_sums<T>(first + (unit + 32 * u) * kEight * size, to, sums[u]);
    }
  }
}

/// Whether warps can sum an op's rows: 16-bit sources of one dtype, targets of it or of fp32, all in units of 16 bytes.
__device__ inline bool sums_by_warps(const WorkerTable& table, const OpRecord& step, uint32_t sources) {
  const SourceRecord* from = table.sources + step.first_source;
  bool good = step.num_epilogue == 0 && !step.polls && step.cols % kEight == 0 && element_bytes(from[0].dtype) == 2;
#pragma unroll 1
  for (uint32_t i = 0; i < sources; ++i)
    good = good && from[i].dtype == from[0].dtype && in_eights(from[i].data, from[i].ld, from[i].dtype, 2);
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    good = good && in_eights(to.data, to.ld, to.dtype, to.rows) && to.mode != StoreMode::publish &&
           (to.dtype == from[0].dtype || to.dtype == DType::fp32);
  }
  return good;
}

/// Whether an op adds its results to all targets.
__device__ inline bool accumulates(const WorkerTable& table, const OpRecord& step) {
  bool adds = true;
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets; ++i)
    adds = adds && table.targets[step.first_target + i].mode == StoreMode::accumulate;
  return adds;
}

/// Whether the place of a token is none, or a row in memory; else report it. A caller may have made the handle.
__device__ __forceinline__ bool has_row(int place, int most_rows, int token, Patience& patience) {
  if (place >= -1 && place < most_rows) [[likely]]
    return true;
  report_failure(patience.watch, {.task = patience.task,
                                  .wait = kRowBeyond,
                                  .wanted = static_cast<uint64_t>(token),
                                  .seen = static_cast<uint64_t>(static_cast<int64_t>(place)),
                                  .epoch = patience.epoch});
  patience.over = true;
  return false;
}

/// The lists of a token, a warp's lane by lane: the rows, -1 behind the last one, and their weights.
struct TokenLists {
  SourceRecord places;
  SourceRecord shares;
  int width;
  int most_rows;  ///< of the table in memory

  struct Entry {
    int place = -1;
    float share = 0;
  };
  /// The rows before the first entry without one, of 32 entries.
  [[nodiscard]] static __device__ int rows_of_list(const Entry& mine) {
    return __clz(static_cast<int>(__brev(~__ballot_sync(~0U, mine.place >= 0))));
  }
  [[nodiscard]] __device__ Entry entry(bool wanted, int token, int first, Patience& patience) const {
    const int i = first + static_cast<int>(threadIdx.x) % 32;
    if (!wanted || i >= width) return {};
    const int place = reinterpret_cast<const int32_t*>(places.data)[token * places.ld + i];
    if (!has_row(place, most_rows, token, patience)) return {};
    return {place, reinterpret_cast<const float*>(shares.data)[token * shares.ld + i]};
  }
};

/// For each token the sum of its rows times their weights, in fp32, in the order of the rows. `depth`: most rows.
template <typename T>
__device__ __forceinline__ void sum_experts(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                            Patience& patience) {
  const SourceRecord rows = table.sources[step.first_source];
  const TokenLists lists{table.sources[step.first_source + 1], table.sources[step.first_source + 2], step.depth,
                         step.rows_below};
  const bool adds = accumulates(table, step);
  RowParts parts(step, slice);
  // NOTE: the lists of the next part are loaded early, as its rows can only be loaded then.
  TokenLists::Entry next = lists.entry(parts.at < parts.end, parts.row(parts.at), 0, patience);
#pragma unroll 1
  for (; parts.at < parts.end; parts.at += parts.stride) {
    const int token = parts.row(parts.at);
    const int unit = parts.unit(parts.at);
    TokenLists::Entry mine = next;
    next = lists.entry(parts.at + parts.stride < parts.end, parts.row(parts.at + parts.stride), 0, patience);
    int count = TokenLists::rows_of_list(mine);
    if (adds && count == 0) continue;  // nothing to add, nothing to send
    const auto row_at = [&](int i) { return rows.data + __shfl_sync(~0U, mine.place, i) * rows.ld * sizeof(T); };
    const auto weight = [&](int i) { return __shfl_sync(~0U, mine.share, i); };
    RowValues sums = {};
#pragma unroll 1
    for (int first = 32;; first += 32) {
#pragma unroll 1
      for (int i = 0; i + 1 < count; i += 2) {
        RowWords words[2];
        load_row(row_at(i), unit, parts.last, words[0]);
        load_row(row_at(i + 1), unit, parts.last, words[1]);
        add_row<T>(words[0], weight(i), sums);
        add_row<T>(words[1], weight(i + 1), sums);
      }
      if (count % 2 > 0) {
        RowWords words;
        load_row(row_at(count - 1), unit, parts.last, words);
        add_row<T>(words, weight(count - 1), sums);
      }
      if (count < 32 || first >= step.depth) break;
      mine = lists.entry(true, token, first, patience);
      count = TokenLists::rows_of_list(mine);
    }
    store_row<T>(table, step, token, unit, parts.last, sums);
  }
}

/// The sum of the sources in their order, in fp32.
template <typename T>
__device__ __forceinline__ void sum_partials(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  const SourceRecord* from = table.sources + step.first_source;
  RowParts parts(step, slice);
#pragma unroll 1
  for (; parts.at < parts.end; parts.at += parts.stride) {
    const int row = parts.row(parts.at);
    const int unit = parts.unit(parts.at);
    const auto row_of = [&](uint32_t i) { return from[i].data + row * from[i].ld * sizeof(T); };
    RowValues sums;
    RowWords words[2];
    load_row(row_of(0), unit, parts.last, words[0]);
    load_row(row_of(min(1U, step.num_sources - 1U)), unit, parts.last, words[1]);
#pragma unroll
    for (int u = 0; u < kUnitsOfLane; ++u) widen_eight<T>(words[0][u], sums[u]);
#pragma unroll 1
    for (uint32_t i = 1; i < step.num_sources; ++i) {
      add_row<T>(words[1], 1, sums);
      load_row(row_of(min(i + 1, step.num_sources - 1U)), unit, parts.last, words[1]);
    }
    store_row<T>(table, step, row, unit, parts.last, sums);
  }
}

}  // namespace tilewire::cuda
