// Streams that callers name by a handle.
// Used by CudaProgram::run.
#pragma once

#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {

/// The stream of a caller's handle, as in CUDA: 0 and 1 are the legacy default stream, 2 is the thread's default
/// stream. Throws Error(invalid_input) for the legacy default stream if ranks share the device, as it is one stream for
/// all.
[[nodiscard]] cudaStream_t callers_stream(void* handle, bool shares_device);
/// Throw Error(invalid_input) for a stream of another GPU than `device`, which is the current one. NOTE: do not call it
/// for a stream in capture, as the query invalidates the capture.
void require_device(cudaStream_t stream, int device);

}  // namespace tilewire::cuda
