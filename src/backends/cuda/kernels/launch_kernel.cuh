// Launches of kernels. Each checks its own result, not an error that a caller's earlier calls have left.
// Included by workers.cu, plain_ops.cu, gemv.cu, rows.cu and device_clock.cu.
#pragma once

#include <utility>

#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {

struct LaunchShape {
  uint32_t ctas = 1;
  uint32_t threads = 32;      ///< of a CTA
  uint32_t shared_bytes = 0;  ///< dynamic shared memory
  uint32_t cluster = 1;       ///< CTAs of a cluster
};

/// Launch a kernel. `early`: CTAs may begin before the kernel before this one in the stream ends (programmatic
/// dependent launch). `what` names the launch in the error. Throws Error.
template <class... Parameters, class... Arguments>
void launch_early_kernel(const char* what, void (*kernel)(Parameters...), const LaunchShape& shape, bool early,
                         cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.ctas);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (early) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {shape.cluster, 1, 1};
  }
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), what);
}

/// The same, not early, without dynamic shared memory and clusters.
template <class... Parameters, class... Arguments>
void launch_kernel(const char* what, void (*kernel)(Parameters...), uint32_t ctas, uint32_t threads,
                   cudaStream_t stream, Arguments&&... arguments) {
  launch_early_kernel(what, kernel, {.ctas = ctas, .threads = threads}, false, stream,
                      std::forward<Arguments>(arguments)...);
}

}  // namespace tilewire::cuda
