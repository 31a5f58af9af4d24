// A device's last-level cache, block by block: the K steps of GEMM inputs and the results that it holds. Used by
// costs.cpp on machines with a memory controller, and by tests.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::sim {

/// Blocks are numbered. The least recently used block is evicted first.
class BlockCache {
 public:
  explicit BlockCache(int64_t capacity_bytes) : capacity_(capacity_bytes) {}

  /// Number of the first of the `count` blocks of a region; the same in every call with the same count.
  int blocks_of(const Region& region, int64_t count);
  /// Read or write a block of `bytes`. Returns the bytes that memory must supply: all or 0.
  int64_t touch(int block, int64_t bytes);

 private:
  struct Block {
    int64_t bytes = 0;  ///< 0: not in the cache
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
