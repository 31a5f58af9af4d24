// Half-open ranges, and the ceiling rule that divides rows or columns into shards.
// Used everywhere.
#pragma once

#include <cstdint>

namespace tilewire {

/// A half-open range of rows or columns.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const Range&) const = default;
  [[nodiscard]] int64_t size() const { return end - begin; }
};

/// The shard of `rank` out of `extent` rows or columns by the ceiling rule: each rank has ceil(extent / num_ranks),
/// except that the last ranks have fewer or none.
[[nodiscard]] constexpr Range shard_of(int64_t extent, int num_ranks, int rank) {
  const int64_t each = num_ranks > 0 ? extent / num_ranks + (extent % num_ranks != 0) : 0;
  const auto clamp = [&](int64_t x) { return x < extent ? x : extent; };
  return {clamp(each * rank), clamp(each * (rank + 1))};
}

/// The shard that has row or column `at` of `extent` (shard_of).
[[nodiscard]] constexpr int64_t shard_at(int64_t extent, int64_t num_ranks, int64_t at) {
  return at / (extent / num_ranks + (extent % num_ranks != 0));
}

}  // namespace tilewire
