// A device's last-level cache for GEMM inputs: the strips of A and B that it holds.
// Used by costs.cpp.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <tuple>

#include "tilewire/plan.hpp"

namespace tilewire::sim {

/// An LRU cache of whole regions. The inputs of running tiles are never evicted: tiles of a wave step along K together,
/// so they share one read of a strip, whatever its length.
class Cache {
 public:
  explicit Cache(int64_t capacity_bytes) : capacity_(capacity_bytes) {}

  /// A tile starts to read `region`. Returns the bytes that memory must supply: all or 0.
  int64_t acquire(const Region& region, int64_t bytes);
  /// The tile has finished reading `region`.
  void release(const Region& region);

 private:
  using Key = std::tuple<int, int, int64_t, int64_t, int64_t, int64_t>;
  struct Strip {
    int64_t bytes = 0;
    int readers = 0;
    std::list<Key>::iterator place{};  ///< position in idle_, if no tile reads the strip
  };
  static Key key_of(const Region& region) {
    return {region.rank, region.buffer, region.row, region.rows, region.col, region.cols};
  }
  void make_room();

  int64_t capacity_;
  int64_t held_ = 0;
  std::map<Key, Strip> strips_;
  std::list<Key> idle_;  ///< least recently used first
};

}  // namespace tilewire::sim
