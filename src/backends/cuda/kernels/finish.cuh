// The end of an op: epilogue, one rounding, stores to every target.
// Used by ops.cuh and multiply.cuh.
#pragma once

#include <type_traits>

#include "backends/cuda/kernels/ll_protocol.cuh"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// Apply a step of an epilogue to element (row, col) of the result.
__device__ __forceinline__ void apply_step(const Bases& bases, const EpilogueRecord& what, int row, int col,
                                           float& value) {
  switch (what.kind) {
    case EpilogueKind::bias:
    case EpilogueKind::residual: {
      const int64_t at = what.kind == EpilogueKind::bias ? col : row * what.ld + col;
      value += load_element(resolve(bases, what.operand) + at * element_bytes(what.dtype), what.dtype);
      break;
    }
    case EpilogueKind::gelu:
      value *= 0.5F * (1.0F + erff(value * 0.70710678F));
      break;
    case EpilogueKind::relu:
      value = value < 0 ? 0 : value;
      break;
    case EpilogueKind::scale:
      value *= what.value;
      break;
    case EpilogueKind::swiglu_pairs:
      break;  // by the op that multiplies
  }
}

__device__ __forceinline__ void apply_epilogue(const WorkerTable& table, const OpRecord& step, int row, int col,
                                               float& value) {
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_epilogue; ++i)
    apply_step(*table.bases, table.epilogue[step.first_epilogue + i], row, col, value);
}

/// Apply the epilogue to one element of the result, round it once, store it to every target.
__device__ inline void finish_element(const WorkerTable& table, const OpRecord& step, int row, int col, float value) {
  apply_epilogue(table, step, row, col, value);
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    if (row < to.first_row || row >= to.first_row + to.rows) continue;
    std::byte* at = to.data + ((row - to.first_row) * to.ld + col) * element_bytes(to.dtype);
    if (to.mode == StoreMode::accumulate) {
      add_element(at, to.dtype, value);
    } else if (to.mode == StoreMode::publish) {
      publish_element(at, to.dtype, value);
    } else {
      store_element(at, to.dtype, value);
    }
  }
}

/// Store eight elements of any dtype, 16 bytes at a time.
__device__ __forceinline__ void store_others(std::byte* to, DType dtype, StoreMode mode, const float* values) {
  const auto put = [mode, dtype](std::byte* at, const uint4& words) {
    if (mode == StoreMode::accumulate) return add_words(at, dtype, words);
    mode == StoreMode::publish ? publish(at, words) : static_cast<void>(*reinterpret_cast<uint4*>(at) = words);
  };
  if (element_bytes(dtype) == 2) return put(to, round_eight(dtype, values));
  const auto bits = [&](int i) { return bits_to_publish(values[i]); };
  put(to, make_uint4(bits(0), bits(1), bits(2), bits(3)));
  put(to + 16, make_uint4(bits(4), bits(5), bits(6), bits(7)));
}

/// The same for eight elements of a row. `T`: the usual dtype of targets. NOTE: the values rotate through values[0], so
/// that one copy of the epilogue's code serves all; eight copies would be most of the kernel's code.
template <typename T>
__device__ __forceinline__ void finish_eight(const WorkerTable& table, const OpRecord& step, int row, int col,
                                             float* values) {
  if (step.num_epilogue > 0) [[unlikely]] {
#pragma unroll 1
    for (int i = 0; i < kEight; ++i) {
      float first = values[0];
      apply_epilogue(table, step, row, col + i, first);
#pragma unroll
      for (int j = 1; j < kEight; ++j) values[j - 1] = values[j];
      values[kEight - 1] = first;
    }
  }
  constexpr DType kMostly = std::is_same_v<T, __half> ? DType::fp16 : DType::bf16;
  const uint4 words = round_eight<T>(values);
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    if (row < to.first_row || row >= to.first_row + to.rows) continue;
    std::byte* at = to.data + ((row - to.first_row) * to.ld + col) * element_bytes(to.dtype);
    if (to.dtype != kMostly) [[unlikely]] {
      store_others(at, to.dtype, to.mode, values);
    } else if (to.mode == StoreMode::publish) {
      publish(at, words);
    } else if (to.mode == StoreMode::accumulate) {
      add_words(at, kMostly, words);
    } else {
      *reinterpret_cast<uint4*>(at) = words;
    }
  }
}

}  // namespace tilewire::cuda
