// The order of one rank's calls on its device. All calls of a team run one after another, whatever their streams: two
// half-resident persistent kernels would wait for each other's peers for ever.
// One in every CudaGroup; used by programs.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"
#include "tilewire/group.hpp"

namespace tilewire::cuda {

/// While it lives, this thread may make CUDA calls that stream capture forbids (allocation, synchronisation), beside
/// captures of any thread.
class BesideCapture {
 public:
  BesideCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  BesideCapture(const BesideCapture&) = delete;
  BesideCapture& operator=(const BesideCapture&) = delete;
  ~BesideCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The number of the capture that a stream is part of, 0 = none. Throws Error(invalid_input) if the capture has failed.
[[nodiscard]] uint64_t capture_of(cudaStream_t stream);

class CallSequence {
 public:
  /// With `shares_device` no call may wait in a queue: each call is enqueued when its stream is empty, and its caller
  /// waits for its end, whatever `order` is.
  CallSequence(CallOrder order, bool shares_device);

  /// Order later work of `stream` after the work in the legacy default stream: cudaMemcpy may return before its data
  /// are on the device. This includes the work of streams without cudaStreamNonBlocking. No effect on a shared device,
  /// where that stream belongs to all ranks, or while a stream that waits for it is captured.
  void follow_default(cudaStream_t stream);
  /// With CallOrder::stream: order the library's later work in its own `stream` after all earlier eager calls.
  void follow_calls(cudaStream_t stream);
  /// Order later work of `stream` after all earlier calls, including replays of graphs. With CallOrder::stream the
  /// caller has promised this order. `capture`: capture_of(stream).
  void begin(cudaStream_t stream, uint64_t capture);
  /// What was enqueued since `begin` is one call.
  void end(cudaStream_t stream, uint64_t capture);
  /// Whether the caller has promised the order of calls: `begin` enqueues nothing.
  [[nodiscard]] bool by_caller() const { return by_caller_; }
  /// Wait until all calls have ended, with or without an error: with CallOrder::stream all eager calls; on a shared
  /// device they have ended already. Returns CUDA's result. If it is not cudaSuccess, the device has failed and calls
  /// may not have ended.
  cudaError_t wait() const;

 private:
  struct Captured {
    uint64_t capture = 0;
    Event end;
  };

  bool by_caller_;
  bool shares_device_;
  Event end_;                         ///< end of the last call, for replays, too
  Event default_{};                   ///< for follow_default
  std::vector<Captured> captured_{};  ///< end of the last call in each of the last captures
};

}  // namespace tilewire::cuda
