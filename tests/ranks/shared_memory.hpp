// Memory that a test's ranks share, for Group::adopt.
// Used by tests of groups and of operators.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace tilewire::testing {

/// Shared by threads, and by processes that are forked later. The last rank's part comes first.
class SharedMemory {
 public:
  static constexpr int64_t kBytes = 1 << 20;

  explicit SharedMemory(int num_ranks) : num_ranks_(num_ranks) {
    void* memory = mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(memory_, size()); }

  [[nodiscard]] std::byte* of(int rank) const { return memory_ + (num_ranks_ - 1 - rank) * kBytes; }
  [[nodiscard]] std::vector<std::byte*> of_all() const {
    std::vector<std::byte*> all;
    for (int rank = 0; rank < num_ranks_; ++rank) all.push_back(of(rank));
    return all;
  }

 private:
  [[nodiscard]] size_t size() const { return static_cast<size_t>(num_ranks_ * kBytes); }

  int num_ranks_;
  std::byte* memory_ = nullptr;
};

}  // namespace tilewire::testing
