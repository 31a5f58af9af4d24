// An LRU list of blocks.
// Called by costs.cpp.
#include "backends/sim/block_cache.hpp"

namespace tilewire::sim {

int BlockCache::blocks_of(const Region& region, int64_t count) {
  const std::tuple key{region.buffer, region.row, region.rows, region.col, region.cols, count};
  const auto [found, is_new] = first_.try_emplace(key, static_cast<int>(blocks_.size()));
  if (is_new) blocks_.resize(blocks_.size() + static_cast<size_t>(count));
  return found->second;
}

void BlockCache::unlink(int block) {
  const auto [bytes, older, newer] = blocks_[block];
  (older >= 0 ? blocks_[older].newer : oldest_) = newer;
  (newer >= 0 ? blocks_[newer].older : newest_) = older;
}

void BlockCache::make_newest(int block) {
  blocks_[block].older = newest_;
  blocks_[block].newer = -1;
  (newest_ >= 0 ? blocks_[newest_].newer : oldest_) = block;
  newest_ = block;
}

int64_t BlockCache::touch(int block, int64_t bytes) {
  if (blocks_[block].bytes > 0) {
    if (block == newest_) return 0;
    unlink(block);
    make_newest(block);
    return 0;
  }
  if (bytes == 0) return 0;
  blocks_[block].bytes = bytes;
  held_ += bytes;
  make_newest(block);
  while (held_ > capacity_ && oldest_ >= 0) {
    const int oldest = oldest_;
    held_ -= blocks_[oldest].bytes;
    unlink(oldest);
    blocks_[oldest].bytes = 0;
  }
  return bytes;
}

}  // namespace tilewire::sim
