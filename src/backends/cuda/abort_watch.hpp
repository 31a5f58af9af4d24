// A thread that carries the news that the group is broken to my device, where kernels wait.
// One in every CudaGroup.
#pragma once

#include <cstdint>
#include <thread>

#include "backends/cuda/driver.hpp"
#include "backends/host/segment.hpp"
#include "backends/host/slot.hpp"

namespace tilewire::cuda {

class AbortWatch {
 public:
  /// Write 1 to `word`, in the memory of `device`, soon after `segment` is broken. Both outlive the watch.
  AbortWatch(const host::Segment& segment, const Driver& driver, int device, uint32_t* word);
  AbortWatch(const AbortWatch&) = delete;
  AbortWatch& operator=(const AbortWatch&) = delete;
  ~AbortWatch();

 private:
  void watch();

  const host::Segment& segment_;
  Driver driver_;
  int device_;
  uint32_t* word_;
  Stream stream_;
  host::Slot stop_;
  std::thread thread_;
};

}  // namespace tilewire::cuda
