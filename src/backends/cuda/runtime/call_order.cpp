// Events that order the calls of one rank, in streams and in captured graphs.
// Called by programs.
#include "backends/cuda/runtime/call_order.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

/// Most simultaneous captures whose calls are ordered among themselves.
constexpr size_t kMostCaptures = 8;

/// Whether the stream takes work without invalidating a capture of another stream.
bool takes_work(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  const cudaError_t result = cudaStreamIsCapturing(stream, &status);
  if (result != cudaErrorStreamCaptureImplicit) check(result, "cudaStreamIsCapturing");
  // Clear the error, so that the next CUDA call does not return it.
  if (result != cudaSuccess) static_cast<void>(cudaGetLastError());
  return result == cudaSuccess;
}

}  // namespace

uint64_t capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  unsigned long long capture = 0;
  const cudaError_t result = cudaStreamGetCaptureInfo(stream, &status, &capture);
  if (result == cudaErrorStreamCaptureImplicit) {
    static_cast<void>(cudaGetLastError());
    fail(ErrorKind::invalid_input,
         "the legacy default stream takes no call while a stream that waits for it (one without "
         "cudaStreamNonBlocking) is captured");
  }
  check(result, "cudaStreamGetCaptureInfo");
  require(status != cudaStreamCaptureStatusInvalidated, "the capture of the stream has failed before this call");
  return status == cudaStreamCaptureStatusActive ? capture : 0;
}

CallSequence::CallSequence(CallOrder order, bool shares_device)
    : by_caller_(order == CallOrder::stream && !shares_device), shares_device_(shares_device) {
  if (shares_device) return;
  end_ = new_event();
  default_ = new_event();
}

void CallSequence::follow_default(cudaStream_t stream) {
  if (shares_device_ || !takes_work(cudaStreamLegacy)) return;
  check(cudaEventRecord(default_.get(), cudaStreamLegacy), "cudaEventRecord");
  wait_for(stream, default_);
}

void CallSequence::follow_calls(cudaStream_t stream) {
  if (by_caller_) wait_for(stream, end_);
}

void CallSequence::begin(cudaStream_t stream, uint64_t capture) {
  if (shares_device_) {
    // NOTE: a kernel queued behind one that waits for peers would block the peers' kernels in the shared queue.
    if (capture == 0) check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return;
  }
  if (by_caller_) return;
  // NOTE: also if the last call was in this stream: a replay in another stream may have come between the two.
  if (capture == 0) return wait_for(stream, end_);
  const auto before = std::ranges::find(captured_, capture, &Captured::capture);
  // Calls of one capture use its own events. What runs before the graph is known at replay: an external event.
  before != captured_.end() ? wait_for(stream, before->end) : wait_for(stream, end_, cudaEventWaitExternal);
}

void CallSequence::end(cudaStream_t stream, uint64_t capture) {
  if (shares_device_ || (by_caller_ && capture != 0)) return;
  if (capture == 0) return check(cudaEventRecord(end_.get(), stream), "cudaEventRecord");
  check(cudaEventRecordWithFlags(end_.get(), stream, cudaEventRecordExternal), "cudaEventRecordWithFlags");
  auto mine = std::ranges::find(captured_, capture, &Captured::capture);
  if (mine == captured_.end()) {
    if (captured_.size() == kMostCaptures) captured_.erase(captured_.begin());
    mine = captured_.insert(captured_.end(), Captured{capture, new_event()});
  }
  check(cudaEventRecord(mine->end.get(), stream), "cudaEventRecord");
}

cudaError_t CallSequence::wait() const { return shares_device_ ? cudaSuccess : cudaEventSynchronize(end_.get()); }

}  // namespace tilewire::cuda
