// Plans of a GEMM of each rank's expert and an all-to-all behind it: rows of the result go to the ranks of their
// tokens. Used by fused_claims.cpp, claims_verb.cpp and tests.
#pragma once

#include <cstdint>

#include "tilewire/check.hpp"
#include "tilewire/plan.hpp"

namespace tilewire::cli {

/// One expert on each rank. The n-th part of its rows is of tokens of rank n.
struct Combine {
  int ranks = 0;
  int64_t rows = 0;  ///< of each expert
  int64_t n = 0;
  int64_t k = 0;
  int copies = 1;  ///< ranks to which each row goes: that of its token, and the ranks after that
};

/// A call of the library's GEMM, then one of its all-to-all, of 16-bit elements. NOTE: with two copies the all-to-all
/// sends rows twice, but nothing is counted that puts them into its buffer twice.
[[nodiscard]] Plan combine_in_turn(const Combine& combine);
/// One kernel: the rows of each tile go where they belong, those of other ranks first.
[[nodiscard]] Plan combine_by_tiles(const Combine& combine, int64_t tile_m, int64_t tile_n);

/// What the kernel computes: global row rows * rank + i is row i of the expert of that rank, and global column n * rank
/// + j its column j.
[[nodiscard]] Specification combine_specification(const Combine& combine);

}  // namespace tilewire::cli
