// Plans of an all-to-all and a GEMM behind it: each rank's expert takes its rows from all ranks.
// Used by ficco_claims.cpp, claims_verb.cpp and tests.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/check.hpp"
#include "tilewire/plan.hpp"

namespace tilewire::cli {

/// One expert on each rank.
struct TokenDispatch {
  std::vector<int64_t> rows{};  ///< by rank: rows that its expert takes, in equal parts from all ranks
  int64_t n = 0;                ///< columns of each expert's result
  int64_t k = 0;
};

/// When the rows of an expert are multiplied.
enum class DispatchWay {
  serial,  ///< all after an all-to-all of the library, in one call of the library
  shards,  ///< those of each rank by a call of the library; a rank sends to one peer after the other
  chunks,  ///< an eighth of these by a call; ranks send to all peers at once
  tiles,   ///< by tiles of one kernel, each of which waits for its eighths; sent as `chunks`
};

/// The plan, of 16-bit elements. The library's all-to-all has equal parts, so ranks with fewer rows send padding.
[[nodiscard]] Plan dispatch_plan(const TokenDispatch& dispatch, DispatchWay way);

/// What the plans other than `serial` compute: global row i is row i of all ranks' experts, and global column
/// n * rank + j is column j of the expert of that rank.
[[nodiscard]] Specification dispatch_specification(const TokenDispatch& dispatch);

}  // namespace tilewire::cli
