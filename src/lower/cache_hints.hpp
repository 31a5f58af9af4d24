// L2 eviction priorities, by measurement (docs/cuda.md, The GEMM kernel; docs/decisions.md, Caches).
// Used by the pass hint_caches, and by tables of plain products.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "tilewire/plan.hpp"

namespace tilewire {

struct OperandHints {
  CacheHint a = CacheHint::none;
  CacheHint b = CacheHint::none;

  bool operator==(const OperandHints&) const = default;
};

/// For tiles of `tile_m` rows of one GPU: B has so many bytes, and so many rows in all are multiplied by each of its
/// columns. `near`: at about the same time.
[[nodiscard]] OperandHints cache_hints_for(int64_t rows, int64_t b_bytes, int64_t tile_m, bool near);

/// Tiles of one GPU, so many positions apart in the order of tiles at most, load at about the same time.
inline constexpr int64_t kNear = 16;

/// The hints for the tiles of a launch. `reach`: how far apart in their order tiles of the same columns of B may be and
/// still load them at about the same time.
class HintFinder {
 public:
  explicit HintFinder(int64_t reach) : reach_(reach) {}

  /// The next tile, of so many rows and columns, over so many steps of 64 columns of A. `shared`: the columns of B and
  /// the part of K that it has in common with others.
  void add(const std::array<int64_t, 5>& shared, int64_t rows, int64_t cols, int64_t k_steps);
  [[nodiscard]] OperandHints find(int64_t tile_m) const { return cache_hints_for(rows_, b_bytes_, tile_m, near_); }

 private:
  struct Sharers {
    int64_t first = 0;  ///< position of the first one
    int64_t rows = 0;
  };

  int64_t reach_;
  int64_t num_tiles_ = 0;
  int64_t rows_ = 0;  ///< most of any sharers
  int64_t b_bytes_ = 0;
  bool near_ = true;
  std::map<std::array<int64_t, 5>, Sharers> all_;
};

}  // namespace tilewire
