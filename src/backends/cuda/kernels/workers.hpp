// The host's view of worker CTAs: the kernel for plans that need no tensor cores.
// Called by the cuda backend's programs.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// Load the kernel into the current device: the first launch of one that is not loaded waits for all running kernels.
void load_worker_kernel();

/// Enqueue a kernel that executes all lanes. Its CTAs must be resident together with everything that they wait for.
/// `ends_call`: it is the last kernel of the call. `experts`: lanes have ops of mixture of experts, and neither
/// products nor norms. Throws Error if CUDA refuses.
void launch_workers(const WorkerLaunch& launch, const Preamble& preamble, bool ends_call, cudaStream_t stream,
                    bool experts = false);

/// The sync-only lanes alone, which end the call: few threads and registers, so that other kernels can use their SM.
void launch_sync_lanes(const WorkerLaunch& launch, cudaStream_t stream);
/// One data lane alone, with `ctas` CTAs; another kernel ends the call.
void launch_data_lane(const WorkerLaunch& launch, uint32_t lane, uint32_t ctas, cudaStream_t stream);

}  // namespace tilewire::cuda
