// Sets of ranks, one for each of many things, as bits.
// Used by order.cpp and races.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tilewire::checking {

class RankSets {
 public:
  using Set = std::span<const uint64_t>;

  RankSets() = default;
  /// Empty sets, or sets of all ranks.
  RankSets(int num_ranks, int64_t num_sets, bool full = false)
      : words_((static_cast<size_t>(num_ranks) + kBits - 1) / kBits),
        bits_(words_ * static_cast<size_t>(num_sets), full ? ~uint64_t{0} : 0) {}

  [[nodiscard]] Set operator[](int64_t set) const { return {bits_.data() + static_cast<size_t>(set) * words_, words_}; }
  [[nodiscard]] bool has(int64_t set, int rank) const { return ((*this)[set][rank / kBits] >> rank % kBits & 1) != 0; }

  void add(int64_t set, int rank) { word(set, rank / kBits) |= uint64_t{1} << rank % kBits; }
  void add(int64_t set, Set others) {
    for (size_t i = 0; i < words_; ++i) word(set, i) |= others[i];
  }
  void fill(int64_t set) {
    for (size_t i = 0; i < words_; ++i) word(set, i) = ~uint64_t{0};
  }

 private:
  static constexpr int kBits = 64;

  [[nodiscard]] uint64_t& word(int64_t set, size_t i) { return bits_[static_cast<size_t>(set) * words_ + i]; }

  size_t words_ = 0;
  std::vector<uint64_t> bits_{};
};

/// Whether two sets have a rank in common.
[[nodiscard]] inline bool meet(RankSets::Set x, RankSets::Set y) {
  for (size_t i = 0; i < x.size(); ++i) {
    if ((x[i] & y[i]) != 0) return true;
  }
  return false;
}

}  // namespace tilewire::checking
