// The walker as a kernel of its own.
// Called by programs through walk.hpp.
#include <algorithm>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/walk.cuh"
#include "backends/cuda/walk.hpp"

namespace tilewire::cuda {
namespace {

__global__ void __launch_bounds__(kStepThreads, 1) walk_kernel(const __grid_constant__ WalkLaunch launch) {
  __shared__ bool go;
  walk_roles<true>(launch, blockIdx.x, go);
  leave_call(launch.counters);
}

}  // namespace

void load_walk_kernel() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, walk_kernel), "cudaFuncGetAttributes");
}

void launch_walk(const WalkLaunch& launch, cudaStream_t stream) {
  // NOTE: a rank without work has one CTA, which ends the call.
  const uint32_t ctas = std::max(1u, walking_ctas(launch.table, kStepThreads));
  walk_kernel<<<ctas, kStepThreads, 0, stream>>>(launch);
  check(cudaGetLastError(), "launch of walk_kernel");
}

}  // namespace tilewire::cuda
