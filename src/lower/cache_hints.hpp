// Rules for L2 eviction priorities, from measurements (docs/cuda.md, The GEMM kernel; docs/decisions.md, Caches).
// Used by the pass hint_caches, and by tables of plain products (cuda backend).
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

/// The hints for tiles of `tile_m` rows on one GPU. `rows`: most rows that are multiplied by the same columns of B.
/// `b_bytes`: bytes of B. `near`: tiles with the same columns of B load them at about the same time.
[[nodiscard]] OperandHints cache_hints_for(int64_t rows, int64_t b_bytes, int64_t tile_m, bool near);

/// Tiles of one GPU load at about the same time if they are fewer than this many positions apart in the tile order.
inline constexpr int64_t kNear = 16;

/// Finds the hints for the tiles of a launch. `reach`: tiles with the same columns of B load them at about the same
/// time if they are less than this many positions apart in the tile order.
class HintFinder {
 public:
  explicit HintFinder(int64_t reach) : reach_(reach) {}

  /// Add the next tile: its rows and columns, and its steps of 64 columns of A. `shared` identifies its columns of B
  /// and its range of K; tiles with an equal `shared` load the same data.
  void add(const std::array<int64_t, 5>& shared, int64_t rows, int64_t cols, int64_t k_steps);
  [[nodiscard]] OperandHints find(int64_t tile_m) const { return cache_hints_for(rows_, b_bytes_, tile_m, near_); }

 private:
  struct Sharers {
    int64_t first = 0;  ///< position of the first tile
    int64_t rows = 0;
  };

  int64_t reach_;
  int64_t num_tiles_ = 0;
  int64_t rows_ = 0;  ///< most rows of the tiles with one `shared`
  int64_t b_bytes_ = 0;
  bool near_ = true;
  std::map<std::array<int64_t, 5>, Sharers> all_;
};

}  // namespace tilewire
