// Instantiations of the GEMM kernel, its tensor maps and its launch.
// Called by the cuda backend, tests and benchmarks through gemm_tiles.hpp.
#include <cudaTypedefs.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cuda/gemm_tiles.cuh"
#include "backends/cuda/gemm_tiles.hpp"
#include "tilewire/error.hpp"

namespace tilewire::cuda {
namespace {

using KernelPointer = void (*)(GemmLaunch);

struct Kernel {
  GemmBodyKind kind{};
  KernelPointer function = nullptr;
  int shared_bytes = 0;
};

template <typename In, bool kBIsKN, int kTileM, int kTileN>
Kernel kernel_of() {
  using Body = GemmBody<In, kBIsKN, kTileM, kTileN>;
  const DType dtype = std::is_same_v<In, __half> ? DType::fp16 : DType::bf16;
  return {{dtype, kBIsKN, {kTileM, kTileN}}, gemm_tiles_kernel<Body>, Body::kSharedBytes};
}

template <typename In, bool kBIsKN, size_t... kShape>
void add_kernels(std::vector<Kernel>& kernels, std::index_sequence<kShape...>) {
  (kernels.push_back(kernel_of<In, kBIsKN, kTileShapes[kShape].m, kTileShapes[kShape].n>()), ...);
}

const std::vector<Kernel>& all_kernels() {
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> all;
    const auto shapes = std::make_index_sequence<kTileShapes.size()>{};
    add_kernels<__nv_bfloat16, false>(all, shapes);
#ifndef TILEWIRE_GEMM_BF16_NK_ONLY
    add_kernels<__nv_bfloat16, true>(all, shapes);
    add_kernels<__half, false>(all, shapes);
    add_kernels<__half, true>(all, shapes);
#endif
    return all;
  }();
  return kernels;
}

const Kernel& find_kernel(const GemmBodyKind& kind) {
  for (const Kernel& kernel : all_kernels()) {
    const GemmBodyKind& k = kernel.kind;
    if (k.dtype == kind.dtype && k.b_is_kn == kind.b_is_kn && k.shape == kind.shape) return kernel;
  }
  throw Error(ErrorKind::unsupported, "gemm_tiles has no body of " + std::to_string(kind.shape.m) + "x" +
                                          std::to_string(kind.shape.n) + " for these dtypes");
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorKind::internal, std::string(what) + ": " + cudaGetErrorString(status));
}

PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result),
          "cudaGetDriverEntryPointByVersion");
    if (result != cudaDriverEntryPointSuccess) throw Error(ErrorKind::unsupported, "the driver has no tensor maps");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  }();
  return function;
}

CUtensorMapDataType map_type(DType dtype) {
  if (dtype == DType::bf16) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if (dtype == DType::fp16) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return dtype == DType::fp32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_INT32;
}

/// Boxes of 128 bytes x box_rows, swizzled by 128 bytes.
CUtensorMap make_map(const MatrixView& m, int box_rows) {
  CUtensorMap map{};
  const auto size = static_cast<cuuint64_t>(bytes_of(m.dtype));
  const cuuint64_t dims[2] = {static_cast<cuuint64_t>(m.cols), static_cast<cuuint64_t>(m.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(m.ld) * size};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(128 / size), static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result = encoder()(&map, map_type(m.dtype), 2, const_cast<void*>(m.data), dims, strides, box, steps,
                                    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorKind::invalid_input, "no tensor map for a matrix of " + std::to_string(m.rows) + " x " +
                                              std::to_string(m.cols) + " with ld " + std::to_string(m.ld) +
                                              ": 16-byte alignment is needed");
  }
  return map;
}

/// What CUDA wants to know about a launch; not to be copied, as `config` points into it.
struct LaunchConfig {
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};

  LaunchConfig(const Kernel& kernel, uint32_t ctas, uint32_t cluster, cudaStream_t stream) {
    check(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes),
          "cudaFuncSetAttribute");
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster, 1, 1};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = static_cast<size_t>(kernel.shared_bytes);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;
};

}  // namespace

CUtensorMap make_a_map(const MatrixView& a, TileShape shape) { return make_map(a, shape.m == 64 ? 64 : shape.m / 2); }

CUtensorMap make_b_map(const MatrixView& b, TileShape shape, bool b_is_kn) {
  return make_map(b, b_is_kn ? kTileK : shape.n / 2);
}

CUtensorMap make_output_map(const MatrixView& c) { return make_map(c, 64); }

int shared_bytes(const GemmBodyKind& kind) { return find_kernel(kind).shared_bytes; }

uint32_t balanced_ctas(const GemmBodyKind& kind, Share share, uint32_t num_tiles) {
  const Kernel& kernel = find_kernel(kind);
  const uint32_t cluster = cluster_ctas(share);
  LaunchConfig launch(kernel, cluster, cluster, nullptr);
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel.function, &launch.config), "cudaOccupancyMaxActiveClusters");
  const uint32_t most = static_cast<uint32_t>(clusters) * cluster;
  if (num_tiles == 0 || most == 0) return 0;
  const uint32_t turns = (num_tiles + most - 1) / most;
  const uint32_t ctas = (num_tiles + turns - 1) / turns;
  return (ctas + cluster - 1) / cluster * cluster;
}

void load_gemm_tiles(const GemmBodyKind& kind) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, find_kernel(kind).function), "cudaFuncGetAttributes");
}

void launch_gemm_tiles(const GemmBodyKind& kind, const GemmLaunch& launch, cudaStream_t stream) {
  const uint32_t cluster = cluster_ctas(launch.share);
  const uint32_t tiles = launch.table.num_tiles;
  GemmLaunch full = launch;
  if (full.ctas == 0) full.ctas = balanced_ctas(kind, full.share, tiles);
  full.ctas = std::min(full.ctas, tiles);
  if (full.ctas == 0) return;
  if (full.ctas % cluster != 0 || tiles % cluster != 0 || (cluster > 1 && full.counter != nullptr) ||
      (cluster > 1 && full.share != Share::b && kind.shape.m == 64)) {
    throw Error(ErrorKind::unsupported, "gemm_tiles: clusters need whole groups, a fixed order, and boxes to share");
  }
  const Kernel& kernel = find_kernel(kind);
  // NOTE: a grid is whole clusters; CTAs beyond the walkers end at once.
  const uint32_t all = full.ctas + walking_ctas(full.walk.table, kThreads);
  LaunchConfig config(kernel, (all + cluster - 1) / cluster * cluster, cluster, stream);
  check(cudaLaunchKernelEx(&config.config, kernel.function, full), "launch of gemm_tiles");
}

}  // namespace tilewire::cuda
