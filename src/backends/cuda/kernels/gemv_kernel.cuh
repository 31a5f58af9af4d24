// The GEMV kernel: few rows of A by many columns, at the rate of memory, and the sums across ranks behind it.
// Included by gemv_bf16.cu, gemv_fp16.cu and gemv_fp32.cu, which have its types.
//
// A CTA makes up to 128 columns. Its warps slice K. Each thread loads pieces of B and of A, 16 bytes each, through a
// ring of its warp in shared memory, so that no barrier of the CTA is between the loads and the products.
#pragma once

#include <array>

#include "backends/cuda/kernels/gemv_multiply.cuh"
#include "backends/cuda/kernels/norm_columns.cuh"

namespace tilewire::cuda {

constexpr int kGemvThreads = kComputeThreads + 32;  ///< the last warp waits for signals

/// Put a warp's products where its ring was.
template <class Operations, int kTiles, int kBlocks, int kSums>
__device__ inline void keep_sums(const float (&sums)[kTiles][kBlocks][kSums], uint8_t* of_warp) {
  constexpr int kPitch = Ring<kTiles, kBlocks>::kPitch;
  auto* kept = reinterpret_cast<float*>(of_warp);
  __syncwarp();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      Operations::keep(sums[tile][block], kept + block * kRowBlock * kPitch + tile * kTileLines, kPitch);
  }
}

/// One thread: add what the slices of K have of kUnit neighbouring lines of B.
template <typename T, int kTiles, int kBlocks>
__device__ __forceinline__ void add_slices(const Part& part, const uint8_t* shared, int row, int line,
                                           float (&sums)[kUnit<T>]) {
  using Of = Ring<kTiles, kBlocks>;
  constexpr int kLines = kTiles * kTileLines;  // of a warp
  const int group = line / kLines;
  const uint8_t* from = shared + group * part.sharing.slices * Of::kWarpBytes +
                        (row * Of::kPitch + line - group * kLines) * sizeof(float);
#pragma unroll 4
  for (int slice = 0; slice < part.sharing.slices; ++slice, from += Of::kWarpBytes) {
#pragma unroll
    for (int i = 0; i < kUnit<T>; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i * sizeof(float));
      sums[i] += four.x, sums[i + 1] += four.y, sums[i + 2] += four.z, sums[i + 3] += four.w;
    }
  }
}

/// One thread: a unit of the partial, from column `col` of the CTA on.
template <typename T, int kTiles, int kBlocks>
__device__ __forceinline__ uint4 partial_unit(const Part& part, const uint8_t* shared, bool pairs, int row, int col) {
  constexpr int kHalf = kUnit<T> / 2;
  float values[kUnit<T>] = {};
  if (!pairs) {
    add_slices<T, kTiles, kBlocks>(part, shared, row, col, values);
    return round_unit<T>(values);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float of_pairs[kUnit<T>] = {};
    add_slices<T, kTiles, kBlocks>(part, shared, row, 2 * col + half * kUnit<T>, of_pairs);
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float gate = of_pairs[2 * i];
      values[half * kHalf + i] = gate / (1.0F + __expf(-gate)) * of_pairs[2 * i + 1];
    }
  }
  return round_unit<T>(values);
}

/// One warp: let the operands of the CTA's columns come to the L2 cache, since weights have replaced them there.
template <typename T>
__device__ inline void prefetch_operands(const SumOfPartials& of, const Bases& bases, const Part& part, int rows) {
  const auto fetch = [&](const std::byte* from, int64_t at) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(resolve(bases, from) + at * sizeof(T)));
  };
  constexpr int kLine = 128 / sizeof(T);  // elements
  const int lines = (part.cols + kLine - 1) / kLine + 1;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < rows * lines; i += 32) {
    const int row = i / lines;
    const int64_t col = part.first_col + min(i % lines * kLine, part.cols - 1);
#pragma unroll 1
    for (uint32_t step = 0; step < of.num_steps && of.fetches; ++step) {
      const EpilogueRecord& what = of.steps[step];
      if (what.kind == EpilogueKind::bias && row == 0) fetch(what.operand, col);
      if (what.kind == EpilogueKind::residual) fetch(what.operand, row * what.ld + col);
    }
    if (row > 0 || !of.norm.there) continue;
    fetch(of.norm.weight.data, col);
    if (of.norm.layer) fetch(of.norm.bias.data, col);
  }
}

/// The last warp: the call begins; peers may be written to when their signals are here.
__device__ inline bool await_peers(const GemvTable& table, const WorkerLaunch& launch, uint64_t epoch) {
  TaskSpan* span = span_of(launch, table.first_tile + blockIdx.x);
  note_taken(span);
  note_start(span, blockIdx.x);
  return all_signals_come(table.exchange.waits, table.exchange.num_waits, epoch, launch.watch,
                          table.first_tile + blockIdx.x);
}

/// The threads that multiply: the products of the CTA's lines, in the warps' rings.
template <typename T, BLayout kLayout, int kTiles, int kBlocks>
__device__ __forceinline__ void multiply_part(const WorkerLaunch& launch, const GemvTable& table, const Part& part,
                                              uint8_t* shared) {
  using Products = Operations<T, kLayout, kBlocks>;
  uint8_t* of_warp = shared + threadIdx.x / 32 * Ring<kTiles, kBlocks>::kWarpBytes;
  float sums[kTiles][kBlocks][Products::kSums] = {};
  multiply_all(LoadStream<T, kLayout, kTiles, kBlocks>(table, launch.bases, part, of_warp), table.constant_b, sums);
  keep_sums<Products>(sums, of_warp);
}

template <typename T, BLayout kLayout, int kTiles, int kBlocks>
__global__ void __launch_bounds__(kGemvThreads, 1)
    gemv_kernel(const __grid_constant__ WorkerLaunch launch, const __grid_constant__ GemvTable table) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ bool go;
  __shared__ uint64_t epoch_here, copy_here;
  ptx::let_next_kernel_begin();
  // NOTE: until the earlier kernels are complete, only parameters of the launch and constant inputs may be read.
  if (blockIdx.x >= table.ctas) {
    ptx::await_earlier_kernels();
    run_sync_lanes(launch, blockIdx.x - table.ctas);
    return leave_call(launch);
  }
  const Part part = part_of<T>(table);
  if (threadIdx.x < kComputeThreads) {
    multiply_part<T, kLayout, kTiles, kBlocks>(launch, table, part, shared);
  } else {
    ptx::await_earlier_kernels();
    prefetch_operands<T>(table.sum, launch.bases, part, table.rows);
    if (threadIdx.x == kComputeThreads) {
      if (blockIdx.x == 0) note_call(launch);
      epoch_here = calls_before(launch);
      copy_here = copy_of_call(launch);
      count_call(launch);
      go = await_peers(table, launch, epoch_here);
    }
  }
  __syncthreads();
  const uint64_t epoch = *static_cast<volatile uint64_t*>(&epoch_here);
  const uint64_t copy = *static_cast<volatile uint64_t*>(&copy_here);
  bool good = *static_cast<volatile bool*>(&go);
  const int units = part.cols / kUnit<T>;
  const auto unit = static_cast<int>(threadIdx.x);
  const int col = unit % units * kUnit<T>;
  const ThreadUnits<1> at{unit / units, part.first_col + col, 0, unit < table.rows * units ? 1 : 0};
  Operands operands[1]{};
  float values[1][kUnit<T>] = {};
  if (good && at.has(0)) {
    const SumOfPartials& sum = table.sum;
    TaskSpan* tile_span = unit == 0 ? span_of(launch, table.first_tile + blockIdx.x) : nullptr;
    TaskSpan* span = table.sums && unit == 0 ? span_of(launch, sum.first_name + blockIdx.x) : nullptr;
    Patience patience{launch.watch, sum.first_name + blockIdx.x, epoch, unit == 0, span};
    if (table.sums) note_taken(span), note_end(tile_span);
    const uint4 mine[1] = {partial_unit<T, kTiles, kBlocks>(part, shared, table.pairs, at.row, col)};
    send_units<T>(table.exchange, launch.bases, copy, at, mine);
    operands[0] = load_operands<T>(sum, launch.bases, at.row, at.col(0));
    good = sum_units<T>(sum, launch.bases, copy, at, mine, operands, values, patience);
    if (good) note_end(table.sums ? span : tile_span);
    if (unit == 0 && good && sum.signal != nullptr) atomicAdd(reinterpret_cast<unsigned long long*>(sum.signal), 1ull);
  }
  if (table.sum.norm.there) {
    const NormPlace place{table.moments, static_cast<int>(table.ctas), table.tile_cols, table.cols,
                          table.rows,    static_cast<int>(blockIdx.x)};
    normalise_columns<T>(place, table.sum.norm, launch, at, good, operands, values, epoch);
  }
  leave_call(launch, true);
}

/// The kernel for these rows and tiles of a warp.
template <typename T, BLayout kLayout, int kBlocks>
GemvKernel gemv_kernel_of(int tiles) {
  constexpr int kMost = kMostTiles<T>;
  if constexpr (kMost > 2) {
    if (tiles == 3) return gemv_kernel<T, kLayout, 3, kBlocks>;
    if (tiles == 4) return gemv_kernel<T, kLayout, 4, kBlocks>;
  }
  return tiles == 1 ? gemv_kernel<T, kLayout, 1, kBlocks> : gemv_kernel<T, kLayout, 2, kBlocks>;
}
template <typename T, BLayout kLayout>
GemvKernel gemv_kernel_of(int rows, int tiles) {
  return rows <= kRowBlock ? gemv_kernel_of<T, kLayout, 1>(tiles) : gemv_kernel_of<T, kLayout, 2>(tiles);
}
template <typename T>
GemvKernel gemv_kernel_of(int rows, int tiles, BLayout layout) {
  return layout == BLayout::nk ? gemv_kernel_of<T, BLayout::nk>(rows, tiles)
                               : gemv_kernel_of<T, BLayout::kn>(rows, tiles);
}

}  // namespace tilewire::cuda
