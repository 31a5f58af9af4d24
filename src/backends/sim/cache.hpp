// A device's last-level cache, as far as GEMM inputs go: which strips of A and B need not come from memory.
// Used by costs.cpp.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <tuple>

#include "tilewire/plan.hpp"

namespace tilewire::sim {

/// Whole regions, least recently used first to go. What a running tile reads stays: tiles that run together walk along
/// K together, so one read serves all of them however long their strips are.
class Cache {
 public:
  explicit Cache(int64_t capacity_bytes) : capacity_(capacity_bytes) {}

  /// A tile begins to read `region` of `bytes` bytes. Returns what must come from memory: all or nothing.
  int64_t acquire(const Region& region, int64_t bytes);
  /// The tile has read it.
  void release(const Region& region);

 private:
  using Key = std::tuple<int, int, int64_t, int64_t, int64_t, int64_t>;
  struct Strip {
    int64_t bytes = 0;
    int readers = 0;
    std::list<Key>::iterator place{};  ///< in idle_, where nobody reads it
  };
  static Key key_of(const Region& region) {
    return {region.rank, region.buffer, region.row, region.rows, region.col, region.cols};
  }
  void make_room();

  int64_t capacity_;
  int64_t held_ = 0;
  std::map<Key, Strip> strips_;
  std::list<Key> idle_;  ///< oldest first
};

}  // namespace tilewire::sim
