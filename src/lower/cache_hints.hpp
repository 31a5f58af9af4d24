// L2 eviction priorities, by measurement (docs/cuda_gemm_notes.md, Cache hints).
// Used by the pass hint_caches, and by tables of plain products.
#pragma once

#include <cstdint>

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

}  // namespace tilewire
