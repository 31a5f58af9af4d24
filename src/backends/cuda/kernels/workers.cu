// Worker CTAs in a kernel of their own.
// Called by programs through workers.hpp.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/expert_ops.cuh"
#include "backends/cuda/kernels/launch_kernel.cuh"
#include "backends/cuda/kernels/workers.cuh"
#include "backends/cuda/kernels/workers.hpp"

namespace tilewire::cuda {
namespace {

/// Threads of a CTA, and its dynamic shared memory.
template <bool kExperts>
constexpr int kWorkerThreads = kExperts ? kExpertThreads : kOpThreads;
template <bool kExperts>
constexpr uint32_t kWorkerBytes = kExperts ? sizeof(RoutingShared) : 0;

/// With kExperts: for lanes of mixture of experts.
template <bool kExperts>
__global__ void __launch_bounds__(kWorkerThreads<kExperts>, 1)
    worker_kernel(const __grid_constant__ WorkerLaunch launch, const __grid_constant__ Preamble preamble,
                  bool ends_call) {
  __shared__ WorkerShared shared;
  static_assert(kOpThreads <= kMostWarpgroups * kWarpgroupThreads);
  constexpr int kLastWarp = kWorkerThreads<kExperts> - 32;
  if (blockIdx.x == 0 && threadIdx.x == kLastWarp) note_call(launch);
  // If there are few lanes, this warp has nothing else to do.
  if (preamble.has_task && blockIdx.x == gridDim.x - 1 && threadIdx.x == kLastWarp) open_workers(launch, preamble);
  // NOTE: on a broken team an earlier kernel of the call may not have routed. All threads decide alike, also if the
  // team breaks now.
  if (!kExperts || __syncthreads_or(threadIdx.x == 0 && is_aborted(launch.watch)) == 0) {
    using More = std::conditional_t<kExperts, ExpertOps, NoMoreOps>;
    run_worker_roles<!kExperts, More>(launch, blockIdx.x, shared);
  }
  if (ends_call) leave_call(launch);
}

constexpr uint32_t kSyncThreads = 256;

__global__ void __launch_bounds__(kSyncThreads) sync_kernel(const __grid_constant__ WorkerLaunch launch) {
  if (blockIdx.x == 0 && threadIdx.x == blockDim.x - 32) note_call(launch);
  const uint32_t lane = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0 && lane < launch.table.sync_lanes) run_sync_lane(launch, lane);
  leave_call(launch);
}

}  // namespace

void load_worker_kernel() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, worker_kernel<false>), "cudaFuncGetAttributes");
  check(cudaFuncGetAttributes(&attributes, worker_kernel<true>), "cudaFuncGetAttributes");
  check(cudaFuncSetAttribute(worker_kernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, kWorkerBytes<true>),
        "cudaFuncSetAttribute");
  check(cudaFuncGetAttributes(&attributes, sync_kernel), "cudaFuncGetAttributes");
}

void launch_workers(const WorkerLaunch& launch, const Preamble& preamble, bool ends_call, cudaStream_t stream,
                    bool experts) {
  LaunchShape shape{.threads = static_cast<uint32_t>(experts ? kExpertThreads : kOpThreads)};
  // NOTE: a rank without work has one CTA, which ends the call.
  shape.ctas = std::max(1u, worker_ctas(launch.table, shape.threads));
  shape.shared_bytes = experts ? kWorkerBytes<true> : 0;
  const auto kernel = experts ? worker_kernel<true> : worker_kernel<false>;
  launch_early_kernel("launch of worker_kernel", kernel, shape, false, stream, launch, preamble, ends_call);
}

void launch_sync_lanes(const WorkerLaunch& launch, cudaStream_t stream) {
  WorkerLaunch sync_only = launch;
  sync_only.table.lanes += launch.table.num_lanes - launch.table.sync_lanes;
  const uint32_t threads = std::clamp(launch.table.sync_lanes * 32, 32u, kSyncThreads);
  const uint32_t ctas = std::max(1u, (launch.table.sync_lanes * 32 + threads - 1) / threads);
  launch_kernel("launch of sync_kernel", sync_kernel, ctas, threads, stream, sync_only);
}

void launch_data_lane(const WorkerLaunch& launch, uint32_t lane, uint32_t ctas, cudaStream_t stream) {
  WorkerLaunch data = launch;
  data.table.lanes += lane;
  data.table.num_lanes = 1;
  data.table.ctas = ctas;
  data.table.sync_lanes = 0;
  launch_kernel("launch of worker_kernel", worker_kernel<false>, ctas, kOpThreads, stream, data, Preamble{}, false);
}

}  // namespace tilewire::cuda
