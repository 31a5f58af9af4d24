// Memory of all ranks that this one addresses, part by part: the arena, and what callers have shared themselves.
// Owned by groups; programs ask it where callers' tensors lie, here and on the other ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "tilewire/tensor.hpp"

namespace tilewire {

class ReachableMemory {
 public:
  /// Byte i of a rank's part lies at `at[rank] + i`.
  struct Part {
    std::vector<std::byte*> at{};
    int64_t bytes = 0;
  };

  explicit ReachableMemory(int rank) : rank_(rank) {}

  /// Part 0, which may grow.
  void set_arena(Part arena) { parts_[0] = std::move(arena); }
  /// Throw Error(invalid_input) where it is none, or shares bytes of mine with another part.
  void check(const Part& part) const;
  /// All ranks add theirs in the same order.
  void add(Part part) { parts_.push_back(std::move(part)); }
  /// The part in which my bytes from `data` on lie.
  [[nodiscard]] std::optional<int> part_of(const void* data, int64_t bytes) const;
  /// How far behind my part that of `rank` lies, in bytes.
  [[nodiscard]] std::ptrdiff_t distance(int part, int rank) const {
    return parts_[part].at[rank] - parts_[part].at[rank_];
  }
  /// A number that means the same place of my bytes on all ranks: the part above kPartShift, then the byte.
  [[nodiscard]] std::optional<int64_t> place_of(const void* data, int64_t bytes) const;
  /// The same of a tensor that is dense and not empty.
  [[nodiscard]] std::optional<int64_t> place_of(const Tensor& tensor) const;
  /// That place in the memory of `rank`.
  [[nodiscard]] std::byte* at(int rank, int64_t place) const {
    return parts_[place >> kPartShift].at[rank] + (place & ((int64_t{1} << kPartShift) - 1));
  }

 private:
  static constexpr int kPartShift = 48;

  int rank_;
  std::vector<Part> parts_{1};
};

}  // namespace tilewire
