// The end of a step: epilogue, one rounding, stores to every destination.
// Used by steps.cuh and multiply.cuh.
#pragma once

#include "backends/cuda/elements.cuh"
#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

__device__ __forceinline__ void apply_epilogue(const WalkTable& table, const StepRecord& step, int row, int col,
                                               float& value) {
  for (uint32_t i = 0; i < step.num_epilogue; ++i) {
    const EpilogueRecord& what = table.epilogue[step.first_epilogue + i];
    switch (what.kind) {
      case EpilogueKind::bias:
      case EpilogueKind::residual: {
        const int64_t at = what.kind == EpilogueKind::bias ? col : row * what.ld + col;
        value += load_element(what.operand + at * element_bytes(what.dtype), what.dtype);
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
    }
  }
}

/// Epilogue, one rounding, stores of one element of the result.
__device__ inline void finish_element(const WalkTable& table, const StepRecord& step, int row, int col, float value) {
  apply_epilogue(table, step, row, col, value);
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    if (row < to.first_row || row >= to.first_row + to.rows) continue;
    std::byte* at = to.data + ((row - to.first_row) * to.ld + col) * element_bytes(to.dtype);
    to.mode == StoreMode::store ? store_element(at, to.dtype, value) : add_element(at, to.dtype, value);
  }
}

/// The same for eight elements of a row. NOTE: each comes to the front for the epilogue, so that there is one piece of
/// code for all; eight would be most of what the kernels consist of.
__device__ __forceinline__ void finish_eight(const WalkTable& table, const StepRecord& step, int row, int col,
                                             float* values) {
  if (step.num_epilogue > 0) {
#pragma unroll 1
    for (int i = 0; i < kEight; ++i) {
      float first = values[0];
      apply_epilogue(table, step, row, col + i, first);
#pragma unroll
      for (int j = 1; j < kEight; ++j) values[j - 1] = values[j];
      values[kEight - 1] = first;
    }
  }
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    if (row < to.first_row || row >= to.first_row + to.rows) continue;
    store_eight(to.data + ((row - to.first_row) * to.ld + col) * element_bytes(to.dtype), to.dtype, values);
  }
}

}  // namespace tilewire::cuda
