// The host's view of the walker: the kernel for plans that need no tensor cores.
// Called by the cuda backend's programs.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

/// Load the kernel into the current device: the first launch of one that is not there waits for all that run.
void load_walk_kernel();

/// Enqueue a kernel that walks all lanes; its CTAs must be resident together with everything they wait for. The last
/// kernel of a call ends it. Throws Error where CUDA refuses.
void launch_walk(const WalkLaunch& launch, const Opening& opening, bool ends_call, cudaStream_t stream);

/// The light lanes alone, which end the call: few threads and registers, so that their SM is of use to others.
void launch_light_lanes(const WalkLaunch& launch, cudaStream_t stream);
/// One heavy lane alone, which has so many CTAs; another kernel ends the call.
void launch_heavy_lane(const WalkLaunch& launch, uint32_t lane, uint32_t ctas, cudaStream_t stream);

}  // namespace tilewire::cuda
