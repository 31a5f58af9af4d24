// Compute bodies and their parameters.
// Used by plans; core/bodies.hpp has the table of their properties.
#pragma once

#include <cstdint>

#include "tilewire/dtype.hpp"
#include "tilewire/norm.hpp"

namespace tilewire {

enum class Body {
  gemm,  ///< reads[0] = A [M,K]; reads[1] = B in `GemmParams::b_layout`; reads[2...] = rows of A below reads[0]
  pool,  ///< reads[0] = table; reads[1] = int32 indices, one row of them per row of the result
  norm,  ///< reads[0] = rows; reads[1] = weight, one row; reads[2] = bias, one row, of NormKind::layer
};

/// L2 eviction priority of the lines that a tile loads.
enum class CacheHint {
  automatic,  ///< the backend's choice
  none,
  evict_first,
  evict_normal,
};

/// How a product is computed, by `gemm_call` or by `compute` with the body gemm.
struct GemmParams {
  BLayout b_layout = BLayout::nk;
  bool allow_tf32 = false;  ///< the library may round fp32 operands to TF32
  int64_t tile_m = 128;     ///< rows and columns of the kernel's tile; the result may be smaller
  int64_t tile_n = 256;
  int cluster_m = 1;  ///< CTAs that share loads of B (cluster_m) and of A (cluster_n)
  int cluster_n = 1;
  int cluster_split_k = 1;  ///< CTAs of a cluster that make one tile, each over a part of K
  CacheHint a_hint = CacheHint::automatic;
  CacheHint b_hint = CacheHint::automatic;

  bool operator==(const GemmParams&) const = default;
};

}  // namespace tilewire
