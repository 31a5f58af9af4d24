// The host's view of the worker CTA: the kernel for plans that need no tensor cores.
// Called by the cuda backend's programs.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// Load the kernel into the current device: the first launch of one that is not there waits for all that run.
void load_worker_kernel();

/// Enqueue a kernel that executes all lanes; its CTAs must be resident together with everything they wait for. The last
/// kernel of a call ends it. Throws Error where CUDA refuses.
void launch_workers(const WorkerLaunch& launch, const Preamble& preamble, bool ends_call, cudaStream_t stream);

/// The sync-only lanes alone, which end the call: few threads and registers, so that their SM is of use to others.
void launch_sync_lanes(const WorkerLaunch& launch, cudaStream_t stream);
/// One data lane alone, which has so many CTAs; another kernel ends the call.
void launch_data_lane(const WorkerLaunch& launch, uint32_t lane, uint32_t ctas, cudaStream_t stream);

}  // namespace tilewire::cuda
