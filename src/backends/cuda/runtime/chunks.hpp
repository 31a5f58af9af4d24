// How much device memory to add when a group needs more: few chunks, and not much more than needed.
// Called by SymmetricMemory; needs no CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tilewire::cuda {

/// Chunks are multiples of this. Copies from peers are slower by a third if the size of the memory is not.
constexpr int64_t kGranularity = int64_t{2} << 20;
constexpr int64_t kFirstChunk = int64_t{64} << 20;
/// A chunk that is larger than needed has at most this size.
constexpr int64_t kLargestStep = int64_t{1} << 30;

[[nodiscard]] constexpr int64_t round_up_to_granularity(int64_t bytes) {
  return (bytes + kGranularity - 1) / kGranularity * kGranularity;
}

/// Bytes to add to the `backed` ones, so that there are at least `wanted` of at most `limit`. The total doubles, within
/// `first` and kLargestStep, if the limit allows it. All but `wanted` are multiples of the granularity, 0 <= wanted
/// <= limit.
[[nodiscard]] constexpr int64_t next_chunk(int64_t backed, int64_t wanted, int64_t limit, int64_t first = kFirstChunk) {
  const int64_t needed = round_up_to_granularity(wanted) - backed;
  if (needed <= 0) return 0;
  return std::min(std::max(needed, std::clamp(backed, first, kLargestStep)), limit - backed);
}

}  // namespace tilewire::cuda
