// The ops of mixture of experts that move rows: into groups, and from there to weighted sums.
// Used by expert_ops.cuh.
#pragma once

#include "backends/cuda/kernels/copy_op.cuh"
#include "backends/cuda/kernels/finish.cuh"
#include "backends/cuda/kernels/row_sums.cuh"

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

/// Bring rows of the first source into groups: row r gets row tokens[r].
__device__ __noinline__ void group_rows_op(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  const SourceRecord* from = table.sources + step.first_source;
  const TargetRecord& to = table.targets[step.first_target];
  const auto* extents = reinterpret_cast<const int32_t*>(from[2].data);
  const int size = element_bytes(to.dtype);
  const auto workers = static_cast<int>(slice.count * slice.threads / 32);
  const auto worker = static_cast<int>((slice.index * slice.threads + slice.thread) / 32);
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  int row = worker;  // of a group
#pragma unroll 1
  for (int first = 0; first < step.rows; first += 32) {
    // Each lane holds the extents of a group.
    const int mine = min(first + lane, step.rows - 1);
    const int begin_of_lane = extents[mine];
    const int rows_of_lane = extents[from[2].ld + mine] - begin_of_lane;
    const int groups = min(32, step.rows - first);
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      const int begin = __shfl_sync(~0U, begin_of_lane, group);
      const int rows = __shfl_sync(~0U, rows_of_lane, group);
#pragma unroll 1
      for (; row < rows; row += workers) {
        const int token = *element_of<const int32_t>(from[1], begin + row, 0);
        copy_row(from[0].data + token * from[0].ld * size, to.data + (begin + row) * to.ld * size, step.cols * size);
      }
      row -= rows;
    }
  }
}

/// Copy the rows whose list in the second source does not begin with -1.
__device__ __noinline__ void select_op(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
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

/// sum_experts, one element at a time.
__device__ inline void sum_experts_slowly(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                          Patience& patience) {
  const SourceRecord* from = table.sources + step.first_source;
  const uint64_t total = static_cast<uint64_t>(step.rows) * step.cols;
  const bool adds = accumulates(table, step);
#pragma unroll 1
  for (uint64_t at = slice.begin(total) + slice.thread; at < slice.end(total); at += slice.threads) {
    const auto token = static_cast<int>(at / step.cols);
    if (adds && *element_of<const int32_t>(from[1], token, 0) == -1) continue;
    const auto col = static_cast<int>(at % step.cols);
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < step.depth; ++i) {
      const int row = *element_of<const int32_t>(from[1], token, i);
      if (row == -1 || !has_row(row, step.rows_below, token, patience)) break;
      const std::byte* data = from[0].data + (row * from[0].ld + col) * element_bytes(from[0].dtype);
      sum = __fadd_rn(sum, __fmul_rn(*element_of<const float>(from[2], token, i), load_element(data, from[0].dtype)));
    }
    finish_element(table, step, token, col, sum);
  }
}

__device__ __noinline__ void sum_experts_op(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                            Patience& patience) {
  if (!sums_by_warps(table, step, 1)) return sum_experts_slowly(table, step, slice, patience);
  table.sources[step.first_source].dtype == DType::fp16 ? sum_experts<__half>(table, step, slice, patience)
                                                        : sum_experts<__nv_bfloat16>(table, step, slice, patience);
}

/// reduce_op by warps; false if warps cannot.
__device__ __noinline__ bool sum_partials_op(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  if (!sums_by_warps(table, step, step.num_sources)) return false;
  table.sources[step.first_source].dtype == DType::fp16 ? sum_partials<__half>(table, step, slice)
                                                        : sum_partials<__nv_bfloat16>(table, step, slice);
  return true;
}

}  // namespace tilewire::cuda
