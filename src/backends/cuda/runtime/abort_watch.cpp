// A thread that polls the host's control block every 5 ms.
// Owned by CudaGroup.
#include "backends/cuda/runtime/abort_watch.hpp"

#include <utility>

#include "backends/host/thread.hpp"

namespace tilewire::cuda {

AbortWatch::AbortWatch(const host::Segment& segment, const Driver& driver, int device, uint32_t* word, uint32_t* stop,
                       Calls calls)
    : segment_(segment),
      driver_(driver),
      device_(device),
      word_(word),
      stop_word_(stop),
      calls_(std::move(calls)),
      stream_(new_urgent_stream()),
      thread_(host::start_thread([this] { watch(); })) {}

AbortWatch::~AbortWatch() {
  post(stop_, 1);
  thread_.join();
  // NOTE: the write below must not outlive the memory of its word.
  static_cast<void>(cudaStreamSynchronize(stream_.get()));
}

void AbortWatch::watch() {
  constexpr int64_t kPeriod = 5'000'000;
  while (!segment_.broken()) {
    if (sleep_until_reached(stop_, 1, kPeriod)) return;
    calls_.look();
  }
  *static_cast<volatile uint32_t*>(stop_word_) = 1;
  calls_.leave();
  // NOTE: no copy and no fill, which may need SMs that waiting kernels hold. If this fails, too, the device is lost or
  // its queues are blocked; kernels also poll the stop flag above.
  if (cudaSetDevice(device_) != cudaSuccess) return;
  driver_.stream_write_value_32(stream_.get(), reinterpret_cast<CUdeviceptr>(word_), 1, 0);
}

}  // namespace tilewire::cuda
