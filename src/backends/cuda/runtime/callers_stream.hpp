// Streams that callers name by a handle.
// Used by CudaProgram::run.
#pragma once

#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {

/// The stream that a caller's handle stands for, as in CUDA: 0 and 1 are the legacy default stream, 2 the thread's.
/// Throws Error(invalid_input) for the legacy default stream where ranks share the device: it is one for all of them.
[[nodiscard]] cudaStream_t callers_stream(void* handle, bool shares_device);
/// Throw Error(invalid_input) for a stream of another GPU than `device`, which is the current one. NOTE: not for a
/// stream that is being captured, as a capture does not survive the question.
void require_device(cudaStream_t stream, int device);

}  // namespace tilewire::cuda
