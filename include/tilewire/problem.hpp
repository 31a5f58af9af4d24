// What a caller asks for: operator, sizes, types. Nothing here says how it is done.
// Filled by callers; read by operators (rules, reference) and schedules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/dtype.hpp"

namespace tilewire {

enum class BLayout { nk, kn };  ///< how B is stored, row by row; nk is the weight of a Linear layer. A is [M,K]

/// Whether sums across ranks must give the same bits on every run.
enum class Reduction {
  repeatable,  ///< fp32, in rank order, one rounding: the same bits on every run of one config
  any,         ///< any order: accumulate in place, rings, vendor collectives
};

enum class EpilogueKind {
  bias,
  gelu,
  relu,
  scale,
  residual,  ///< of plans made by hand; in a Problem not implemented yet
};

/// One step applied to finished elements, once, after the reduction across ranks.
struct Epilogue {
  EpilogueKind kind = EpilogueKind::bias;
  double value = 1;  ///< the factor of `scale`

  bool operator==(const Epilogue&) const = default;
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

/// A half-open range of rows or columns.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const Range&) const = default;
  [[nodiscard]] int64_t size() const { return end - begin; }
};

/// Rank `rank`'s share of `extent` things over `num_ranks` ranks by the ceiling rule: each holds
/// ceil(extent / num_ranks) but the last ones, which hold fewer or none.
[[nodiscard]] constexpr Range shard_of(int64_t extent, int num_ranks, int rank) {
  const int64_t each = num_ranks > 0 ? extent / num_ranks + (extent % num_ranks != 0) : 0;
  const auto clamp = [&](int64_t x) { return x < extent ? x : extent; };
  return {clamp(each * rank), clamp(each * (rank + 1))};
}

}  // namespace tilewire
