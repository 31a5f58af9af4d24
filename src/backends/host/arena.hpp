// Which parts of the arena are in use: the same answer on every rank.
// Owned by a group; changed only by collective calls, so offsets agree by construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tilewire::host {

/// A part of every rank's arena.
struct Extent {
  uint64_t id = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

class Arena {
 public:
  explicit Arena(int64_t bytes) : bytes_(bytes) {}
  /// First fit; nothing where no gap is large enough. Collective.
  [[nodiscard]] std::optional<Extent> carve(int64_t bytes);
  /// Bytes of the largest gap.
  [[nodiscard]] int64_t available() const;
  /// This rank no longer uses the part. Not collective: others may still hold it.
  void discard(uint64_t id) { discarded_.push_back(id); }
  [[nodiscard]] const std::vector<uint64_t>& discarded() const { return discarded_; }
  /// Give back what all ranks have discarded. Collective. Returns the freed parts.
  std::vector<Extent> reclaim(const std::vector<std::vector<uint64_t>>& discarded_by_rank);

 private:
  int64_t bytes_;
  uint64_t next_id_ = 0;
  std::vector<Extent> used_;  // sorted by offset
  std::vector<uint64_t> discarded_;
};

}  // namespace tilewire::host
