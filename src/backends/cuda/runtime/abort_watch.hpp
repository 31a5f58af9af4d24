// A thread that carries the news that the group is broken to my device, where kernels wait, and the news that a kernel
// of mine gave up to the group.
// One in every CudaGroup.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "backends/cuda/runtime/driver.hpp"
#include "backends/host/segment.hpp"
#include "backends/host/slot.hpp"

namespace tilewire::cuda {

class AbortWatch {
 public:
  /// What the watch's thread calls.
  struct Calls {
    std::function<void()> look;   ///< now and then until the group is broken; breaks it where it finds a reason
    std::function<void()> leave;  ///< once, when it is broken; must not wait
  };

  /// Write 1 to `word`, in the memory of `device`, and to `stop`, in the host's, soon after `segment` is broken. All
  /// outlive the watch.
  AbortWatch(const host::Segment& segment, const Driver& driver, int device, uint32_t* word, uint32_t* stop,
             Calls calls);
  AbortWatch(const AbortWatch&) = delete;
  AbortWatch& operator=(const AbortWatch&) = delete;
  ~AbortWatch();

 private:
  void watch();

  const host::Segment& segment_;
  Driver driver_;
  int device_;
  uint32_t* word_;
  uint32_t* stop_word_;
  Calls calls_;
  Stream stream_;
  host::Slot stop_;
  std::thread thread_;
};

}  // namespace tilewire::cuda
