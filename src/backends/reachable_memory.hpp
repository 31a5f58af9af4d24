// Memory of all ranks that this rank can address, in parts: the arena, and memory that callers have adopted.
// Owned by groups. Programs look up the positions of callers' tensors, on this rank and on peers.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "tilewire/tensor.hpp"

namespace tilewire {

class ReachableMemory {
 public:
  /// Byte i of a rank's part is at `at[rank] + i`.
  struct Part {
    std::vector<std::byte*> at{};
    int64_t bytes = 0;
  };

  explicit ReachableMemory(int rank) : rank_(rank) {}

  /// Set part 0, the arena. It may grow.
  void set_arena(Part arena) { parts_[0] = std::move(arena); }
  /// Throw Error(invalid_input) if the part is empty, or overlaps another part on this rank.
  void check(const Part& part) const;
  /// Add a part. All ranks add their parts in the same order.
  void add(Part part) { parts_.push_back(std::move(part)); }
  /// The part that contains `bytes` bytes from `data` on, on this rank.
  [[nodiscard]] std::optional<int> part_of(const void* data, int64_t bytes) const;
  /// Distance from this rank's part to the same part of `rank`, in bytes.
  [[nodiscard]] std::ptrdiff_t distance(int part, int rank) const {
    return parts_[part].at[rank] - parts_[part].at[rank_];
  }
  /// Position of this rank's bytes, a number with the same meaning on all ranks: the part above kPartShift, and the
  /// byte.
  [[nodiscard]] std::optional<int64_t> place_of(const void* data, int64_t bytes) const;
  /// The same for a tensor; nothing if it is empty or not dense.
  [[nodiscard]] std::optional<int64_t> place_of(const Tensor& tensor) const;
  /// Address of that position in the memory of `rank`.
  [[nodiscard]] std::byte* at(int rank, int64_t place) const {
    return parts_[place >> kPartShift].at[rank] + (place & ((int64_t{1} << kPartShift) - 1));
  }

 private:
  static constexpr int kPartShift = 48;

  int rank_;
  std::vector<Part> parts_{1};
};

}  // namespace tilewire
