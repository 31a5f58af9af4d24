// Facts of the GPUs that this process sees.
// Called by groups that join, and by cuda_facts.
#pragma once

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {

/// GPUs that this process sees. Throws Error(unsupported) where there is none.
[[nodiscard]] int num_gpus();
/// All but the links that only NVML knows. Throws Error.
[[nodiscard]] Gpu describe_gpu(const Driver& driver, int gpu);

}  // namespace tilewire::cuda
