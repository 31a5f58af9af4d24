// A device's last-level cache block by block: what of the inputs that an inner loop steps through, and of results, is
// there. Used by costs.cpp on machines with a memory controller, and by tests.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::sim {

/// Blocks are numbered; least recently used ones go first.
class BlockCache {
 public:
  explicit BlockCache(int64_t capacity_bytes) : capacity_(capacity_bytes) {}

  /// The first of the `count` blocks that a region is cut into; the same whenever as many are asked for.
  int blocks_of(const Region& region, int64_t count);
  /// Read or write a block of that size. Returns what must come from memory: all or nothing.
  int64_t touch(int block, int64_t bytes);

 private:
  struct Block {
    int64_t bytes = 0;  ///< 0: it is not here
    int older = -1;
    int newer = -1;
  };
  void unlink(int block);
  void make_newest(int block);

  int64_t capacity_;
  int64_t held_ = 0;
  int oldest_ = -1;
  int newest_ = -1;
  std::map<std::tuple<int, int64_t, int64_t, int64_t, int64_t, int64_t>, int> first_;
  std::vector<Block> blocks_;
};

}  // namespace tilewire::sim
