// The walker as a kernel of its own.
// Called by programs through walk.hpp.
#include <algorithm>

#include "backends/cuda/launch_kernel.cuh"
#include "backends/cuda/walk.cuh"
#include "backends/cuda/walk.hpp"

namespace tilewire::cuda {
namespace {

__global__ void __launch_bounds__(kStepThreads, 1)
    walk_kernel(const __grid_constant__ WalkLaunch launch, const __grid_constant__ Opening opening, bool ends_call) {
  __shared__ WalkShared shared;
  static_assert(kStepThreads <= kMostSquads * kSquadThreads);
  // A warp that has nothing else to do, where lanes are few.
  if (opening.has_task && blockIdx.x == gridDim.x - 1 && threadIdx.x == kStepThreads - 32) open_walk(launch, opening);
  walk_roles<true>(launch, blockIdx.x, shared);
  if (ends_call) leave_call(launch);
}

constexpr uint32_t kLightThreads = 256;

__global__ void __launch_bounds__(kLightThreads) light_kernel(const __grid_constant__ WalkLaunch launch) {
  const uint32_t lane = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0 && lane < launch.table.light_lanes) walk_light_lane(launch, lane);
  leave_call(launch);
}

}  // namespace

void load_walk_kernel() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, walk_kernel), "cudaFuncGetAttributes");
  check(cudaFuncGetAttributes(&attributes, light_kernel), "cudaFuncGetAttributes");
}

void launch_walk(const WalkLaunch& launch, const Opening& opening, bool ends_call, cudaStream_t stream) {
  // NOTE: a rank without work has one CTA, which ends the call.
  const uint32_t ctas = std::max(1u, walking_ctas(launch.table, kStepThreads));
  launch_kernel("launch of walk_kernel", walk_kernel, ctas, kStepThreads, stream, launch, opening, ends_call);
}

void launch_light_lanes(const WalkLaunch& launch, cudaStream_t stream) {
  WalkLaunch light = launch;
  light.table.lanes += launch.table.num_lanes - launch.table.light_lanes;
  const uint32_t threads = std::clamp(launch.table.light_lanes * 32, 32u, kLightThreads);
  const uint32_t ctas = std::max(1u, (launch.table.light_lanes * 32 + threads - 1) / threads);
  launch_kernel("launch of light_kernel", light_kernel, ctas, threads, stream, light);
}

void launch_heavy_lane(const WalkLaunch& launch, uint32_t lane, uint32_t ctas, cudaStream_t stream) {
  WalkLaunch heavy = launch;
  heavy.table.lanes += lane;
  heavy.table.num_lanes = 1;
  heavy.table.ctas = ctas;
  heavy.table.light_lanes = 0;
  launch_kernel("launch of walk_kernel", walk_kernel, ctas, kStepThreads, stream, heavy, Opening{}, false);
}

}  // namespace tilewire::cuda
