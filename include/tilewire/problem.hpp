// What a caller asks for: operator, sizes, types. Nothing here says how it is done.
// Filled by callers; read by operators (rules, reference) and schedules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/dtype.hpp"
#include "tilewire/epilogue.hpp"
#include "tilewire/range.hpp"

namespace tilewire {

/// Whether sums across ranks must give the same bits on every run.
enum class Reduction {
  repeatable,  ///< fp32, in rank order, one rounding: the same bits on every run of one config
  any,         ///< any order: accumulate in place, rings, vendor collectives
};

/// Sizes are global: over all ranks. Which of them a rank holds a shard of is the operator's rule
/// (docs/operators.md); shards follow the ceiling rule, see `shard_of`.
struct Problem {
  std::string op{};  ///< name in the table of operators
  int64_t m = 0;     ///< rows of the output (tokens)
  int64_t n = 0;     ///< columns of the output
  int64_t k = 0;     ///< length of the dot products; unused where there is no GEMM
  DType dtype = DType::bf16;
  std::optional<DType> out_dtype{};  ///< default: `dtype`
  BLayout b_layout = BLayout::nk;
  std::vector<Epilogue> epilogue{};  ///< in order; bias first
  Reduction reduction = Reduction::repeatable;
  bool gathered_output = false;      ///< all_gather_*: also return the gathered input
  bool allow_tf32 = false;           ///< fp32 products may be rounded to TF32: cuBLASLt's are (`compute` = library)
  std::vector<std::string> arena{};  ///< callers' buffers that lie in the arena (Group::allocate)

  bool operator==(const Problem&) const = default;
};

[[nodiscard]] inline DType out_dtype_of(const Problem& p) { return p.out_dtype.value_or(p.dtype); }

}  // namespace tilewire
