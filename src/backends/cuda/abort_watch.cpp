// Looks at the host's control block every few milliseconds.
// Owned by CudaGroup.
#include "backends/cuda/abort_watch.hpp"

#include "backends/host/thread.hpp"

namespace tilewire::cuda {

AbortWatch::AbortWatch(const host::Segment& segment, const Driver& driver, int device, uint32_t* word)
    : segment_(segment),
      driver_(driver),
      device_(device),
      word_(word),
      stream_(new_urgent_stream()),
      thread_(host::start_thread([this] { watch(); })) {}

AbortWatch::~AbortWatch() {
  post(stop_, 1);
  thread_.join();
}

void AbortWatch::watch() {
  constexpr int64_t kPeriod = 5'000'000;
  while (!segment_.broken()) {
    if (sleep_until_reached(stop_, 1, kPeriod)) return;
  }
  // NOTE: not a copy and not a fill, which may need the SMs that waiting kernels hold. Where even this fails, the
  // device is lost, or the kernels' own deadlines end their waits.
  if (cudaSetDevice(device_) != cudaSuccess) return;
  driver_.stream_write_value_32(stream_.get(), reinterpret_cast<CUdeviceptr>(word_), 1, 0);
}

}  // namespace tilewire::cuda
