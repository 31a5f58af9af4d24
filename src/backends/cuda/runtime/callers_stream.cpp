// Translates callers' handles of streams, and checks the device of a stream.
// Called by programs.
#include "backends/cuda/runtime/callers_stream.hpp"

#include "core/text.hpp"

namespace tilewire::cuda {
cudaStream_t callers_stream(void* handle, bool shares_device) {
  const auto stream = handle == nullptr ? cudaStreamLegacy : static_cast<cudaStream_t>(handle);
  // NOTE: in one stream a second rank's kernel would start after the end of the first one, which waits for it.
  require(!shares_device || stream != cudaStreamLegacy,
          "stream {}: ranks share a GPU, where the legacy default stream is shared by all ranks of the process: want a "
          "stream of this rank's own, or run_and_wait",
          reinterpret_cast<uintptr_t>(handle));
  return stream;
}

/// NOTE: older CUDA and older drivers do not report the device; then the call's own enqueues fail.
void require_device(cudaStream_t stream, int device) {
  if (stream == cudaStreamLegacy || stream == cudaStreamPerThread) return;
  int found = device;
#if CUDART_VERSION >= 12080
  if (cudaStreamGetDevice(stream, &found) != cudaSuccess) return static_cast<void>(cudaGetLastError());
#endif
  require(found == device, "the stream is one of GPU {}, want GPU {}, this rank's", found, device);
}

}  // namespace tilewire::cuda
