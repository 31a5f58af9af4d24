// Facts of the GPUs that this process sees.
// Called by groups that join, and by cuda_facts.
#pragma once

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {

/// Number of GPUs that this process sees. Throws Error(unsupported) if there is none.
[[nodiscard]] int num_gpus();
/// All facts except those that need NVML: links, clock, power. Throws Error.
[[nodiscard]] Gpu describe_gpu(const Driver& driver, int gpu);

}  // namespace tilewire::cuda
