// Launches of simple kernels. Each checks its own result, not an error that a caller's earlier calls have left.
// Included by workers.cu, plain_ops.cu and device_clock.cu.
#pragma once

#include <utility>

#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {

/// `what` names the launch in the error. Throws Error.
template <class... Parameters, class... Arguments>
void launch_kernel(const char* what, void (*kernel)(Parameters...), uint32_t ctas, uint32_t threads,
                   cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(threads);
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), what);
}

}  // namespace tilewire::cuda
