// A problem: operator, sizes and types. It does not say how they are computed; a config does.
// Filled by callers; read by operators (rules, reference) and schedules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/dtype.hpp"
#include "tilewire/epilogue.hpp"
#include "tilewire/experts.hpp"
#include "tilewire/norm.hpp"
#include "tilewire/range.hpp"

namespace tilewire {

/// Whether sums across ranks must give the same bits on every run.
enum class Reduction {
  repeatable,  ///< fp32, in rank order, one rounding: the same bits on every run of one config
  any,         ///< any order: accumulation in place, rings, the vendor's collectives
};

/// Sizes are global, over all ranks. The operator decides which dimension is sharded (docs/operators.md). Shards follow
/// the ceiling rule (`shard_of`).
struct Problem {
  std::string op{};  ///< name in the table of operators
  int64_t m = 0;     ///< rows of the output (tokens)
  int64_t n = 0;     ///< columns of the output
  int64_t k = 0;     ///< length of the dot products; unused by operators without a GEMM
  /// all_gather_*: columns of further outputs, each with a B of its own. A is gathered once for all outputs. Their
  /// buffers are b1, c1 (and bias1, residual1), b2, ...
  std::vector<int64_t> more_n{};
  DType dtype = DType::bf16;
  std::optional<DType> out_dtype{};  ///< default: `dtype`
  BLayout b_layout = BLayout::nk;
  std::vector<Epilogue> epilogue{};  ///< in order; bias first
  /// Sums over ranks (all-reduces, gemm_reduce_scatter): also return the normalised rows of the rounded output, in its
  /// type. Inputs norm_weight (and norm_bias of NormKind::layer) of 1 x n, output normed. If it quantises: also the
  /// output norm_scale, one column of fp32.
  std::optional<Norm> norm{};
  /// Mixture of experts (moe): m tokens of k columns give rows of n columns.
  std::optional<Experts> experts{};
  Reduction reduction = Reduction::repeatable;
  bool gathered_output = false;  ///< all_gather_*: also return the gathered input
  bool allow_tf32 = false;  ///< fp32 products may be rounded to TF32; with `compute` = library cuBLASLt rounds them
  std::vector<std::string> arena{};  ///< names of callers' buffers that lie in the arena (Group::allocate)
  /// Names of inputs that no work in the stream before a call writes, such as weights. On GPUs a call may load them
  /// before that work is complete.
  std::vector<std::string> constant{};

  bool operator==(const Problem&) const = default;
};

[[nodiscard]] inline DType out_dtype_of(const Problem& p) { return p.out_dtype.value_or(p.dtype); }

/// Name of a buffer of output number `output`: c, c1, c2, ...
[[nodiscard]] inline std::string name_of_output(const std::string& name, size_t output) {
  return output == 0 ? name : name + std::to_string(output);
}

/// Columns of B that `columns` of an output take.
[[nodiscard]] inline int64_t columns_of_b(const Problem& p, int64_t columns) {
  return joins_columns(p.epilogue) ? 2 * columns : columns;
}

/// Sum of the columns of all outputs.
[[nodiscard]] inline int64_t all_columns(const Problem& p) {
  return std::accumulate(p.more_n.begin(), p.more_n.end(), p.n);
}

/// Number of columns of the widest output.
[[nodiscard]] inline int64_t widest_output(const Problem& p) {
  return std::accumulate(p.more_n.begin(), p.more_n.end(), p.n, [](int64_t a, int64_t b) { return std::max(a, b); });
}

/// Column ranges of a rank's outputs of an all_gather_*, numbered consecutively over all outputs.
[[nodiscard]] inline std::vector<Range> columns_on(const Problem& p, int num_ranks, int rank) {
  std::vector<Range> mine{{0, shard_of(p.n, num_ranks, rank).size()}};
  for (const int64_t n : p.more_n) {
    const int64_t first = mine.back().end;
    mine.push_back({first, first + shard_of(n, num_ranks, rank).size()});
  }
  return mine;
}

}  // namespace tilewire
