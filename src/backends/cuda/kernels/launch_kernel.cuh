// Launches of plain kernels, whose own result is checked: what a caller's earlier calls left behind is not ours.
// Included by workers.cu, plain_ops.cu and device_clock.cu.
#pragma once

#include <utility>

#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {

/// `what`: of the error. Throws Error.
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
