// Loads and launches the GEMV kernels.
// Called by programs through gemv.hpp.
#include "backends/cuda/kernels/gemv_loads.cuh"
#include "backends/cuda/kernels/launch_kernel.cuh"
#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {
namespace {

constexpr uint32_t kThreads = kComputeThreads + 32;
/// NOTE: more than half of an SM's shared memory, as two CTAs on an SM take twice as long as one.
constexpr uint32_t kSharedBytes = 150 << 10;
static_assert(kSharedBytes >= kMostRingBytes);
static_assert(Sharing(most_gemv_cols(DType::fp16), kMostTiles<__half>).tiles == kMostTiles<__half>);
static_assert(Sharing(most_gemv_cols(DType::fp32), kMostTiles<float>).tiles == kMostTiles<float>);
static_assert(kMostGemvRows == 2 * kRowBlock);

GemvKernel kernel_for(DType dtype, BLayout layout, int rows, int tiles) {
  if (dtype == DType::bf16) return gemv_kernel_of<__nv_bfloat16>(rows, tiles, layout);
  if (dtype == DType::fp16) return gemv_kernel_of<__half>(rows, tiles, layout);
  return gemv_kernel_of<float>(rows, tiles, layout);
}

int most_tiles(DType dtype) { return dtype == DType::fp32 ? kMostTiles<float> : kMostTiles<__half>; }

}  // namespace

void load_gemv_kernels() {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
      for (const int rows : {1, kMostGemvRows}) {
        for (int tiles = 1; tiles <= most_tiles(dtype); ++tiles)
          check(cudaFuncSetAttribute(kernel_for(dtype, layout, rows, tiles),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
                "cudaFuncSetAttribute");
      }
    }
  }
}

void launch_gemv(const WorkerLaunch& launch, const GemvTable& table, bool early, cudaStream_t stream) {
  const int tiles = Sharing(lines_of(table, table.tile_cols), most_tiles(table.dtype)).tiles;
  const GemvKernel kernel = kernel_for(table.dtype, table.b_layout, table.rows, tiles);
  const uint32_t ctas = table.ctas + worker_ctas(launch.table, kThreads);
  const LaunchShape shape{.ctas = ctas, .threads = kThreads, .shared_bytes = kSharedBytes};
  launch_early_kernel("launch of gemv_kernel", kernel, shape, early, stream, launch, table);
}

}  // namespace tilewire::cuda
