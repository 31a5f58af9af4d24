// The order of one rank's calls on its device: two persistent kernels that are half resident each would wait for
// each other's peers for ever, so that a team's calls run one after another, whatever streams they come on.
// One in every CudaGroup; used by programs.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"
#include "tilewire/group.hpp"

namespace tilewire::cuda {

/// While it lives, calls of this thread that stream capture forbids (allocation, synchronisation) are allowed, beside
/// captures of this or another thread.
class BesideCapture {
 public:
  BesideCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  BesideCapture(const BesideCapture&) = delete;
  BesideCapture& operator=(const BesideCapture&) = delete;
  ~BesideCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The number of the capture that a stream takes part in, 0 = none. Throws Error(invalid_input) where it has failed.
[[nodiscard]] uint64_t capture_of(cudaStream_t stream);

class CallSequence {
 public:
  /// On a device that ranks share nothing may wait in a queue: there each call is enqueued when its stream is empty,
  /// and its caller waits for its end, whatever `order` says.
  CallSequence(CallOrder order, bool shares_device);

  /// What is enqueued next in `stream` comes after the work that the legacy default stream holds: copies by cudaMemcpy,
  /// which may return before the data lies on the device; and so after the work of streams without
  /// cudaStreamNonBlocking. Not on a shared device, where that stream is all ranks', nor while a stream that waits for
  /// it is captured.
  void follow_default(cudaStream_t stream);
  /// With CallOrder::stream: what the library enqueues next in a `stream` of its own comes after the eager calls
  /// before.
  void follow_calls(cudaStream_t stream);
  /// What is enqueued next in `stream` comes after all calls before, replays of graphs included; with
  /// CallOrder::stream by the caller's promise. `capture`: capture_of(stream).
  void begin(cudaStream_t stream, uint64_t capture);
  /// What was enqueued since `begin` is a call.
  void end(cudaStream_t stream, uint64_t capture);
  /// Return when all calls have ended, with an error or without; with CallOrder::stream all eager ones. On a shared
  /// device eager ones have. What CUDA says of it: not cudaSuccess where the device has failed, and they may not have.
  cudaError_t wait() const;

 private:
  struct Captured {
    uint64_t capture = 0;
    Event end;
  };

  bool by_caller_;
  bool shares_device_;
  Event end_;                         ///< of the last call, as replays see it too
  Event default_{};                   ///< of the legacy default stream
  std::vector<Captured> captured_{};  ///< last calls of the last captures: they know no others
};

}  // namespace tilewire::cuda
