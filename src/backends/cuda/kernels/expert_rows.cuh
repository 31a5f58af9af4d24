// The ops of mixture of experts that move rows: into groups, and from there to weighted sums.
// Used by expert_ops.cuh.
#pragma once

#include "backends/cuda/kernels/copy_op.cuh"
#include "backends/cuda/kernels/finish.cuh"

namespace tilewire::cuda {

/// Element (row, col) of a source or target of another type than the products'.
template <typename T, class Record>
[[nodiscard]] __device__ __forceinline__ T* element_of(const Record& of, int row, int col) {
  return reinterpret_cast<T*>(of.data) + row * of.ld + col;
}

/// Copy one row, by a warp.
__device__ __forceinline__ void copy_row(const std::byte* from, std::byte* to, int bytes) {
  constexpr int kAtOnce = 8;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  if (reinterpret_cast<uint64_t>(from) % 16 == 0 && reinterpret_cast<uint64_t>(to) % 16 == 0 && bytes % 16 == 0) {
    const int units = bytes / 16;
#pragma unroll 1
    for (int first = lane; first < units; first += 32 * kAtOnce) {
      uint4 words[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + 32 * i < units) words[i] = reinterpret_cast<const uint4*>(from)[first + 32 * i];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + 32 * i < units) reinterpret_cast<uint4*>(to)[first + 32 * i] = words[i];
      }
    }
    return;
  }
#pragma unroll 1
  for (int i = lane; i < bytes / 2; i += 32)
    reinterpret_cast<uint16_t*>(to)[i] = reinterpret_cast<const uint16_t*>(from)[i];
}

/// Bring rows of the first source into groups: row r gets row tokens[r]. `depth`: groups from the extents' first row to
/// the second.
__device__ inline void group_rows_op(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  const SourceRecord* from = table.sources + step.first_source;
  const TargetRecord& to = table.targets[step.first_target];
  const auto* extents = reinterpret_cast<const int32_t*>(from[2].data);
  const int size = element_bytes(to.dtype);
  const auto workers = static_cast<int>(slice.count * slice.threads / 32);
  const auto worker = static_cast<int>((slice.index * slice.threads + slice.thread) / 32);
  int before = 0;  // rows of earlier groups
#pragma unroll 1
  for (int group = 0; group < step.rows; ++group) {
    const int begin = extents[group];
    const int rows = extents[step.depth + group] - begin;
    int row = (worker - before % workers + workers) % workers;
#pragma unroll 1
    for (; row < rows; row += workers) {
      const int token = *element_of<const int32_t>(from[1], begin + row, 0);
      copy_row(from[0].data + token * from[0].ld * size, to.data + (begin + row) * to.ld * size, step.cols * size);
    }
    before += rows;
  }
}

/// Copy the rows whose list in the second source does not begin with -1.
__device__ inline void select_op(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  const SourceRecord* from = table.sources + step.first_source;
  const int size = element_bytes(from[0].dtype);
  const auto workers = static_cast<int>(slice.count * slice.threads / 32);
  const auto worker = static_cast<int>((slice.index * slice.threads + slice.thread) / 32);
#pragma unroll 1
  for (int row = worker; row < step.rows; row += workers) {
    if (*element_of<const int32_t>(from[1], row, 0) < 0) continue;
#pragma unroll 1
    for (uint32_t i = 0; i < step.num_targets; ++i) {
      const TargetRecord& to = table.targets[step.first_target + i];
      const int at = row - to.first_row;
      if (at < 0 || at >= to.rows) continue;
      copy_row(from[0].data + row * from[0].ld * size, to.data + at * to.ld * size, step.cols * size);
    }
  }
}

/// Whether an op adds its results to all targets.
__device__ inline bool accumulates(const WorkerTable& table, const OpRecord& step) {
  bool adds = true;
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets; ++i)
    adds = adds && table.targets[step.first_target + i].mode == StoreMode::accumulate;
  return adds;
}

/// For each token the sum of its rows times their weights, in fp32, in the order of the rows. `depth`: most rows. Each
/// thread takes eight columns of a token.
template <typename T>
__device__ inline void sum_experts(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  constexpr int kTogether = 4;  // rows whose loads are in flight together
  const SourceRecord* from = table.sources + step.first_source;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const int units = step.cols / kEight;
  const auto parts = static_cast<uint32_t>((units + 31) / 32);
  const uint64_t total = static_cast<uint64_t>(step.rows) * parts;
  const auto end = static_cast<uint32_t>(slice.end(total));
  const bool adds = accumulates(table, step);
#pragma unroll 1
  for (auto at = static_cast<uint32_t>(slice.begin(total)) + slice.thread / 32; at < end; at += slice.threads / 32) {
    const auto token = static_cast<int>(at / parts);
    if (adds && *element_of<const int32_t>(from[1], token, 0) < 0) continue;  // nothing to add, nothing to send
    const int unit = static_cast<int>(at % parts) * 32 + lane;
    float sums[kEight] = {};
    bool more = true;
#pragma unroll 1
    for (int first = 0; first < step.depth && more; first += kTogether) {
      int rows[kTogether];
      float shares[kTogether];
      uint4 words[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int at_hand = min(first + i, step.depth - 1);
        const int row = *element_of<const int32_t>(from[1], token, at_hand);
        rows[i] = first + i < step.depth ? row : -1;
        shares[i] = *element_of<const float>(from[2], token, at_hand);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const std::byte* data = from[0].data + (max(rows[i], 0) * from[0].ld) * sizeof(T);
        if (rows[i] >= 0 && unit < units) words[i] = *reinterpret_cast<const uint4*>(data + int64_t{unit} * 16);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        more = more && rows[i] >= 0;
        if (!more) break;
        float values[kEight];
        widen_eight<T>(words[i], values);
#pragma unroll
        for (int e = 0; e < kEight; ++e) sums[e] = __fadd_rn(sums[e], __fmul_rn(shares[i], values[e]));
      }
    }
    if (unit < units) finish_eight<T>(table, step, token, unit * kEight, sums);
  }
}

/// The same, one element at a time.
__device__ inline void sum_experts_slowly(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  const SourceRecord* from = table.sources + step.first_source;
  const uint64_t total = static_cast<uint64_t>(step.rows) * step.cols;
  const bool adds = accumulates(table, step);
#pragma unroll 1
  for (uint64_t at = slice.begin(total) + slice.thread; at < slice.end(total); at += slice.threads) {
    const auto token = static_cast<int>(at / step.cols);
    if (adds && *element_of<const int32_t>(from[1], token, 0) < 0) continue;
    const auto col = static_cast<int>(at % step.cols);
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < step.depth; ++i) {
      const int row = *element_of<const int32_t>(from[1], token, i);
      if (row < 0) break;
      const std::byte* data = from[0].data + (row * from[0].ld + col) * element_bytes(from[0].dtype);
      sum = __fadd_rn(sum, __fmul_rn(*element_of<const float>(from[2], token, i), load_element(data, from[0].dtype)));
    }
    finish_element(table, step, token, col, sum);
  }
}

__device__ inline void sum_experts_op(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  const SourceRecord& from = table.sources[step.first_source];
  bool eights = step.cols % kEight == 0 && in_eights(from.data, from.ld, from.dtype, 2);
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    eights = eights && in_eights(to.data, to.ld, to.dtype, to.rows);
  }
  if (!eights) return sum_experts_slowly(table, step, slice);
  from.dtype == DType::fp16 ? sum_experts<__half>(table, step, slice) : sum_experts<__nv_bfloat16>(table, step, slice);
}

}  // namespace tilewire::cuda
