// The norm of rows, by threads that take one row together.
// Used by ops.cuh.
#pragma once

#include "backends/cuda/kernels/finish.cuh"
#include "backends/cuda/kernels/warpgroup.cuh"

namespace tilewire::cuda {

/// All threads' values, joined by `join`, at all of them. `room`: a float for each warp of the CTA, in shared memory.
template <class Join>
__device__ inline float join_over(const Warpgroup& warpgroup, float value, float* room, const Join& join) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value = join(value, __shfl_xor_sync(0xFFFFFFFF, value, apart));
  float* mine = room + warpgroup.index * (warpgroup.threads() / 32);
  if (threadIdx.x % 32 == 0) mine[warpgroup.thread() / 32] = value;
  warpgroup.meet();
  float all = 0;
#pragma unroll 1
  for (uint32_t warp = 0; warp < warpgroup.threads() / 32; ++warp) all = join(all, mine[warp]);
  warpgroup.meet();  // before the room is used again
  return all;
}

/// A row of one of the op's sources.
struct RowOf {
  const std::byte* data;
  DType dtype;
  int width;  ///< elements that a thread takes at once: eight or one

  __device__ RowOf(const SourceRecord& from, int row, int at_once)
      : data(from.data + row * from.ld * element_bytes(from.dtype)), dtype(from.dtype), width(at_once) {}
  __device__ void load(int col, float* values) const {
    const std::byte* at = data + int64_t{col} * element_bytes(dtype);
    width == 1 ? static_cast<void>(values[0] = load_element(at, dtype)) : load_eight(at, dtype, values);
  }
};

/// Store some columns of an RMSNorm's row, quantised, and its scale where that is a target.
template <int kWidth>
__device__ inline void quantise_row(const WorkerTable& table, const OpRecord& step, int row, const RowOf& from,
                                    const RowOf& weight, float factor, float* room, const Warpgroup& warpgroup) {
  const auto first = static_cast<int>(warpgroup.thread()) * kWidth;
  const auto stride = static_cast<int>(warpgroup.threads()) * kWidth;
  float values[kWidth];
  const auto normalise = [&](int col) {
    float weights[kWidth];
    from.load(col, values);
    weight.load(col, weights);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = values[i] * factor * weights[i];
  };
  float most = 0;
#pragma unroll 1
  for (int col = first; col < step.depth; col += stride) {
    normalise(col);
#pragma unroll
    for (const float value : values) most = larger(most, fabsf(value));
  }
  const TargetRecord& to = table.targets[step.first_target];
  const float scale =
      scale_of(join_over(warpgroup, most, room, [](float x, float y) { return larger(x, y); }), to.dtype);
#pragma unroll 1
  for (int col = first; col < step.cols; col += stride) {
    normalise(step.first_col + col);
    std::byte* at = to.data + (row - to.first_row) * to.ld + col;
    if constexpr (kWidth == 1) {
      store_quantised(at, to.dtype, values[0], scale);
    } else {
      store_quantised(at, to.dtype, values, scale);
    }
  }
  if (step.num_targets == 1 || first > 0) return;
  const TargetRecord& scales = table.targets[step.first_target + 1];
  *reinterpret_cast<float*>(scales.data + (row - scales.first_row) * scales.ld * sizeof(float)) = scale;
}

/// Normalise the rows of source 0 with weight (source 1) and bias (source 2 of a layer norm), and store some columns.
/// CTAs that share the op take every so many rows.
template <bool kEights>
__device__ inline void normalise_rows(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                      const Warpgroup& warpgroup) {
  constexpr int kWidth = kEights ? kEight : 1;
  __shared__ float room[32];
  const SourceRecord* sources = table.sources + step.first_source;
  const bool layer = step.num_sources > 2;
  const RowOf weight(sources[1], 0, kWidth);
  const RowOf bias(sources[layer ? 2 : 1], 0, kWidth);
  const auto first = static_cast<int>(warpgroup.thread()) * kWidth;
  const auto stride = static_cast<int>(warpgroup.threads()) * kWidth;
  const auto count = static_cast<float>(step.depth);
#pragma unroll 1
  for (int row = static_cast<int>(slice.index); row < step.rows; row += static_cast<int>(slice.count)) {
    const RowOf from(sources[0], row, kWidth);
    // The mean, then the mean square of the distance from it; the mean of an RMSNorm is 0.
    float means[2] = {};
#pragma unroll 1
    for (int power = layer ? 0 : 1; power < 2; ++power) {
      float sum = 0;
#pragma unroll 1
      for (int col = first; col < step.depth; col += stride) {
        float values[kWidth];
        from.load(col, values);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const float value = values[i] - means[0];
          sum += power == 0 ? value : value * value;
        }
      }
      means[power] = join_over(warpgroup, sum, room, [](float x, float y) { return x + y; }) / count;
    }
    const float factor = 1.0F / sqrtf(means[1] + step.value);
    if (is_one_byte(table.targets[step.first_target].dtype)) {
      quantise_row<kWidth>(table, step, row, from, weight, factor, room, warpgroup);
      continue;
    }
#pragma unroll 1
    for (int col = first; col < step.cols; col += stride) {
      float values[kWidth];
      float weights[kWidth];
      float biases[kWidth] = {};
      from.load(step.first_col + col, values);
      weight.load(step.first_col + col, weights);
      if (layer) bias.load(step.first_col + col, biases);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[i] = (values[i] - means[0]) * factor * weights[i] + biases[i];
      if constexpr (kEights) {
        finish_eight<__nv_bfloat16>(table, step, row, col, values);
      } else {
        finish_element(table, step, row, col, values[0]);
      }
    }
  }
}

}  // namespace tilewire::cuda
