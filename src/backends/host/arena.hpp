// The used parts of the arena: the same on every rank.
// Owned by a group. Only collective calls change it, so the offsets agree on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tilewire::host {

/// A part of every rank's arena, at the same offset.
struct Extent {
  uint64_t id = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

class Arena {
 public:
  explicit Arena(int64_t bytes) : bytes_(bytes) {}
  /// Allocate by first fit; nothing if no gap is large enough. Collective.
  [[nodiscard]] std::optional<Extent> carve(int64_t bytes);
  /// Bytes of the largest gap.
  [[nodiscard]] int64_t available() const;
  /// Note that this rank no longer uses a part. Not collective: other ranks may still use it.
  void discard(uint64_t id) { discarded_.push_back(id); }
  [[nodiscard]] const std::vector<uint64_t>& discarded() const { return discarded_; }
  /// Free the parts that all ranks have discarded, and return them. Collective.
  std::vector<Extent> reclaim(const std::vector<std::vector<uint64_t>>& discarded_by_rank);

 private:
  int64_t bytes_;
  uint64_t next_id_ = 0;
  std::vector<Extent> used_;  // sorted by offset
  std::vector<uint64_t> discarded_;
};

}  // namespace tilewire::host
