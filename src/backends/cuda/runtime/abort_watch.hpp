// Forwards failures between the group and the kernels of this rank's device, both ways, by a thread of its own.
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
  /// Functions that the watch's thread calls.
  struct Calls {
    std::function<void()> look;   ///< every 5 ms until the group is broken; breaks it if there is a reason
    std::function<void()> leave;  ///< once, when the group is broken; must not wait
  };

  /// Soon after `segment` is broken, write 1 to `word` in the memory of `device`, and to `stop` in host memory. All
  /// must outlive the watch.
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
