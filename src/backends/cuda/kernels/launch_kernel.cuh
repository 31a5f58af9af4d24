// Launches of kernels. Each checks its own result, not an error that a caller's earlier calls have left.
// Included by workers.cu, plain_ops.cu, gemv.cu, rows.cu and device_clock.cu.
#pragma once

#include <utility>

#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {

/// Launch with `shared_bytes` of dynamic shared memory. `early`: CTAs may begin before the kernel before this one in
/// the stream ends (programmatic dependent launch). `what` names the launch in the error. Throws Error.
template <class... Parameters, class... Arguments>
void launch_early_kernel(const char* what, void (*kernel)(Parameters...), uint32_t ctas, uint32_t threads,
                         int shared_bytes, bool early, cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<uint32_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), what);
}

/// The same, not early, without dynamic shared memory.
template <class... Parameters, class... Arguments>
void launch_kernel(const char* what, void (*kernel)(Parameters...), uint32_t ctas, uint32_t threads,
                   cudaStream_t stream, Arguments&&... arguments) {
  launch_early_kernel(what, kernel, ctas, threads, 0, false, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace tilewire::cuda
