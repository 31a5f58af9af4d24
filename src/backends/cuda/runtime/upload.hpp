// Copies host vectors to tables in device memory.
// Called where tables are made.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {

/// Copies of host vectors, one after another in one allocation.
class Upload {
 public:
  /// `items` must live until finish, which sets `where` to the address of the copy.
  template <class T>
  void add(const std::vector<T>& items, const T** where) {
    const auto bytes = static_cast<int64_t>(items.size() * sizeof(T));
    parts_.push_back({items.data(), bytes, size_, [where](std::byte* at) { *where = reinterpret_cast<const T*>(at); }});
    size_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  /// Allocate, copy and set every `where`, in `stream`. Complete on return.
  [[nodiscard]] std::shared_ptr<std::byte> finish(cudaStream_t stream) const {
    std::shared_ptr<std::byte> memory = new_device_memory(size_, stream);
    for (const Part& part : parts_) {
      std::byte* at = memory.get() + part.offset;
      part.tell(at);
      copy_now(at, part.data, part.bytes, stream);
    }
    return memory;
  }

 private:
  static constexpr int64_t kAlignment = 256;
  struct Part {
    const void* data;
    int64_t bytes;
    int64_t offset;
    std::function<void(std::byte*)> tell;
  };
  std::vector<Part> parts_;
  int64_t size_ = 0;
};

}  // namespace tilewire::cuda
