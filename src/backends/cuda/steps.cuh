// What one step does to memory: copies, sums in rank order, fills, small products. Every thread of the CTA calls.
// Used by walk.cuh.
#pragma once

#include "backends/cuda/elements.cuh"
#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

/// Part `index` of `count` equal parts of a step's work.
struct Slice {
  uint32_t index = 0;
  uint32_t count = 1;

  [[nodiscard]] __device__ uint64_t begin(uint64_t total) const { return total * index / count; }
  [[nodiscard]] __device__ uint64_t end(uint64_t total) const { return total * (index + 1) / count; }
};

/// Whether rows of `ld` elements can be walked in units of eight from `data`.
__device__ inline bool in_eights(const void* data, int64_t ld, DType dtype, int rows) {
  const bool rows_fit = rows <= 1 || ld * element_bytes(dtype) % 16 == 0;
  return reinterpret_cast<uint64_t>(data) % 16 == 0 && rows_fit;
}

/// 16 bytes at a time, four in flight a thread; the same bytes in one row where both sides are dense.
__device__ inline void copy_vectors(const SourceRecord& from, const TargetRecord& to, int64_t row_bytes,
                                    const Slice& slice) {
  constexpr int kInFlight = 4;
  const int64_t from_pitch = from.ld * element_bytes(from.dtype);
  const int64_t to_pitch = to.ld * element_bytes(to.dtype);
  const bool dense = from_pitch == row_bytes && to_pitch == row_bytes;
  const auto rows = static_cast<uint32_t>(dense ? 1 : to.rows);
  const auto per_row = static_cast<uint64_t>(dense ? row_bytes * to.rows : row_bytes) / 16;
  const std::byte* source = from.data + to.first_row * from_pitch;
  const uint64_t end = slice.end(rows * per_row);
  for (uint64_t first = slice.begin(rows * per_row) + threadIdx.x; first < end; first += kInFlight * blockDim.x) {
    uint4 words[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const uint64_t at = first + i * blockDim.x;
      const uint64_t row = dense ? 0 : at / per_row;
      if (at < end) words[i] = *reinterpret_cast<const uint4*>(source + row * from_pitch + (at - row * per_row) * 16);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const uint64_t at = first + i * blockDim.x;
      const uint64_t row = dense ? 0 : at / per_row;
      if (at < end) *reinterpret_cast<uint4*>(to.data + row * to_pitch + (at - row * per_row) * 16) = words[i];
    }
  }
}

__device__ inline void apply_epilogue(const WalkTable& table, const StepRecord& step, int row, int col, float& value) {
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

/// The same for eight elements of a row.
__device__ inline void finish_eight(const WalkTable& table, const StepRecord& step, int row, int col, float* values) {
  if (step.num_epilogue > 0) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) apply_epilogue(table, step, row, col + i, values[i]);
  }
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    if (row < to.first_row || row >= to.first_row + to.rows) continue;
    store_eight(to.data + ((row - to.first_row) * to.ld + col) * element_bytes(to.dtype), to.dtype, values);
  }
}

/// sum + weight * value as the host backend does it: two roundings, none where the weight is 1.
__device__ inline float add_weighted(float sum, float value, float weight) {
  return __fadd_rn(sum, weight == 1.0F ? value : __fmul_rn(weight, value));
}

__device__ inline bool sums_in_eights(const WalkTable& table, const StepRecord& step) {
  bool good = step.cols % kEight == 0;
  for (uint32_t i = 0; i < step.num_sources; ++i) {
    const SourceRecord& from = table.sources[step.first_source + i];
    good = good && in_eights(from.data, from.ld, from.dtype, step.rows);
  }
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    good = good && to.mode == StoreMode::store && in_eights(to.data, to.ld, to.dtype, to.rows);
  }
  return good;
}

/// The sum of the sources in their order, in fp32.
__device__ inline void reduce_step(const WalkTable& table, const StepRecord& step, const Slice& slice) {
  const bool eights = sums_in_eights(table, step);
  const int width = eights ? kEight : 1;
  const auto per_row = static_cast<uint64_t>(step.cols / width);
  const SourceRecord* sources = table.sources + step.first_source;
  const uint64_t total = step.rows * per_row;
  for (uint64_t at = slice.begin(total) + threadIdx.x; at < slice.end(total); at += blockDim.x) {
    const auto row = static_cast<int>(at / per_row);
    const auto col = static_cast<int>(at % per_row) * width;
    float sums[kEight] = {};
    for (uint32_t s = 0; s < step.num_sources; ++s) {
      const SourceRecord& from = sources[s];
      const std::byte* data = from.data + (row * from.ld + col) * element_bytes(from.dtype);
      float values[kEight];
      eights ? load_eight(data, from.dtype, values) : static_cast<void>(values[0] = load_element(data, from.dtype));
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        if (i >= width) break;
        sums[i] = s == 0 && from.weight == 1.0F ? values[i] : add_weighted(sums[i], values[i], from.weight);
      }
    }
    eights ? finish_eight(table, step, row, col, sums) : finish_element(table, step, row, col, sums[0]);
  }
}

__device__ inline void copy_step(const WalkTable& table, const StepRecord& step, const Slice& slice) {
  const SourceRecord& from = table.sources[step.first_source];
  const int64_t row_bytes = static_cast<int64_t>(step.cols) * element_bytes(from.dtype);
  bool vectors = step.num_epilogue == 0 && row_bytes % 16 == 0 && in_eights(from.data, from.ld, from.dtype, step.rows);
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    vectors = vectors && to.mode == StoreMode::store && to.dtype == from.dtype &&
              in_eights(to.data, to.ld, to.dtype, to.rows);
  }
  if (!vectors) return reduce_step(table, step, slice);
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    copy_vectors(from, table.targets[step.first_target + i], row_bytes, slice);
  }
}

__device__ inline void fill_step(const WalkTable& table, const StepRecord& step, const Slice& slice) {
  const uint64_t total = static_cast<uint64_t>(step.rows) * step.cols;
  for (uint64_t at = slice.begin(total) + threadIdx.x; at < slice.end(total); at += blockDim.x) {
    finish_element(table, step, static_cast<int>(at / step.cols), static_cast<int>(at % step.cols), step.value);
  }
}

constexpr int kStepThreads = 256;

/// Products without tensor cores, of any dtype, layout and alignment: blocks of 64 x 64, 16 of K at a time.
__device__ inline void multiply_step(const WalkTable& table, const StepRecord& step) {
  constexpr int kSide = 64;
  constexpr int kDepth = 16;
  constexpr int kOwn = 4;
  __shared__ float a_block[kDepth][kSide + 1];
  __shared__ float b_block[kDepth][kSide + 1];
  const SourceRecord a = table.sources[step.first_source];
  const SourceRecord b = table.sources[step.first_source + 1];
  const auto load = [&](const SourceRecord& from, bool k_major, int line, int lines, int k) {
    if (line >= lines || k >= step.depth) return 0.0F;
    const int64_t at = k_major ? k * from.ld + line : line * from.ld + k;
    return load_element(from.data + at * element_bytes(from.dtype), from.dtype);
  };
  const int x = static_cast<int>(threadIdx.x) % 16;
  const int y = static_cast<int>(threadIdx.x) / 16;
  for (int row0 = 0; row0 < step.rows; row0 += kSide) {
    for (int col0 = 0; col0 < step.cols; col0 += kSide) {
      float sums[kOwn][kOwn] = {};
      for (int k0 = 0; k0 < step.depth; k0 += kDepth) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < kSide * kDepth; i += kStepThreads) {
          const int k = step.a_transposed ? i / kSide : i % kDepth;
          const int line = step.a_transposed ? i % kSide : i / kDepth;
          a_block[k][line] = load(a, step.a_transposed, row0 + line, step.rows, k0 + k);
        }
        for (int i = static_cast<int>(threadIdx.x); i < kSide * kDepth; i += kStepThreads) {
          const int k = step.b_is_kn ? i / kSide : i % kDepth;
          const int line = step.b_is_kn ? i % kSide : i / kDepth;
          b_block[k][line] = load(b, step.b_is_kn, col0 + line, step.cols, k0 + k);
        }
        __syncthreads();
        for (int k = 0; k < kDepth; ++k) {
#pragma unroll
          for (int i = 0; i < kOwn; ++i) {
#pragma unroll
            for (int j = 0; j < kOwn; ++j) sums[i][j] += a_block[k][y + 16 * i] * b_block[k][x + 16 * j];
          }
        }
      }
      for (int i = 0; i < kOwn; ++i) {
        for (int j = 0; j < kOwn; ++j) {
          const int row = row0 + y + 16 * i;
          const int col = col0 + x + 16 * j;
          if (row < step.rows && col < step.cols) finish_element(table, step, row, col, sums[i][j]);
        }
      }
    }
  }
}

/// `multiply` needs kStepThreads threads, and takes the whole step whatever the slice.
template <bool kMultiplies>
__device__ inline void run_step(const WalkTable& table, const StepRecord& step, const Slice& slice) {
  switch (step.act) {
    case Act::copy:
      return copy_step(table, step, slice);
    case Act::reduce:
      return reduce_step(table, step, slice);
    case Act::fill:
      return fill_step(table, step, slice);
    case Act::multiply:
      if constexpr (kMultiplies) multiply_step(table, step);
      return;
    case Act::sync:
      return;
  }
}

}  // namespace tilewire::cuda
