// Streams that callers name by a handle.
// Used by CudaProgram::run.
#pragma once

#include "backends/cuda/driver.hpp"

namespace tilewire::cuda {

/// The stream that a caller's handle stands for, as in CUDA: 0 and 1 are the legacy default stream, 2 the thread's.
/// Throws Error(invalid_input) for a stream of another GPU than `device`, the current one, and where ranks share the
/// device for the legacy default stream, which is one for all of them.
[[nodiscard]] cudaStream_t callers_stream(void* handle, int device, bool shares_device);

}  // namespace tilewire::cuda
