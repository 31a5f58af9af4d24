// The checker: proves that a plan is correct before it runs, or refuses it with a counter-example.
// Called by make_op (on request; always in debug builds), `tilewire check` and the tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/activation.hpp"
#include "tilewire/plan.hpp"

namespace tilewire {

/// The meaning of an element of a caller's buffer.
enum class Role {
  a,             ///< element (row, col) of A: row = m, col = k
  b,             ///< element of B in the problem's layout
  bias,          ///< element (0, n) of an epilogue operand
  residual,      ///< element (m, n) of an epilogue operand
  partial,       ///< element (m, n) of a sum across ranks, with the contributions [terms.begin, terms.end)
  indices,       ///< row indices into a table
  norm_weight,   ///< element (0, n) of the weight of a norm
  norm_bias,     ///< element (0, n) of the bias of a norm
  normed,        ///< element (m, n) of the normalised rows of a sum across ranks, with its contributions
  norm_scale,    ///< element (m, 0): the scale of a quantised row of such
  topk_ids,      ///< the experts of token m
  topk_weights,  ///< the weights of these experts
  w13,      ///< the B of the first product of each expert, one below the other; row 0 = that of group 0 of all ranks
  w2,       ///< the same of the second product
  dropped,  ///< the number of rows that max_rows leaves out on rank `row`
  extents,  ///< of the groups of a rank; with `places` and `place_weights` the handle of a routing
  places,   ///< the rows of token m in the groups of a rank
  place_weights,  ///< the weights of these rows
  expert_x,       ///< tokens in groups: row = the first group among those of all ranks, `terms` = the tokens
  expert_h,       ///< the same: their products with w13, activated
  expert_y,       ///< the same: rows that experts return
};

/// Whether each rank has its own: the handle of its routing, and rows in its groups.
[[nodiscard]] constexpr bool is_of_groups(Role role) { return role >= Role::extents && role <= Role::expert_y; }

/// Where one rank's part of a caller's buffer lies in the global tensor: local element (0, 0) is global element (row,
/// col). For outputs: the value that every element must hold at the end. A buffer whose rows come from several places
/// has a meaning for each block of `rows`; then local element (rows.begin, 0) is global element (row, col).
struct Meaning {
  int buffer = 0;  ///< index among the callers' buffers of the plan
  int rank = 0;
  Role role = Role::a;
  int64_t row = 0;
  int64_t col = 0;
  Range
      terms{};  ///< `partial`, `normed`: the contributions held (inputs) or required (outputs); rows in groups: tokens
  bool finished = false;  ///< outputs: the epilogue has been applied
  Range rows{};           ///< the local rows that have this meaning; empty: all rows

  bool operator==(const Meaning&) const = default;
};

/// The local rows of `buffer` that have this meaning.
[[nodiscard]] inline Range rows_on(const Buffer& buffer, const Meaning& meaning) {
  return meaning.rows.size() > 0 ? meaning.rows : Range{0, shape_on(buffer, meaning.rank).rows};
}

/// What a plan must compute: an operator makes it, and the checker proves it.
struct Specification {
  std::vector<Buffer> buffers{};             ///< callers' buffers in the plan's order; empty = the plan's own
  std::vector<Meaning> meanings{};           ///< Meaning::buffer is an index into the callers' buffers
  std::vector<Epilogue> epilogue{};          ///< applied to finished elements
  std::optional<Norm> norm{};                ///< of `normed` outputs
  std::optional<BLayout> b_layout{};         ///< of all products; nothing: any
  std::vector<RouteParams> routes{};         ///< of each rank, with experts; of `align` any value will do
  Activation activation = Activation::none;  ///< of the first product of experts
  int64_t least_bytes = 0;                   ///< least bytes over links, summed over all ranks; 0 = unknown
};

/// The proof that failed; `unsupported` is a limit of the checker itself.
enum class Rule { structure, progress, coverage, race, unsupported };

/// One reason for a refusal. `text` names the tasks, signals and regions.
struct Violation {
  Rule rule = Rule::structure;
  std::string text{};

  bool operator==(const Violation&) const = default;
};

/// Bytes that one ordered pair of ranks moves in one call.
struct LinkTraffic {
  int from = 0;
  int to = 0;
  int64_t bytes = 0;

  bool operator==(const LinkTraffic&) const = default;
};

struct CheckResult {
  std::vector<Violation> violations{};  ///< empty = proven; at most 20, the first of each kind first
  std::vector<LinkTraffic> traffic{};   ///< pairs of ranks that move at least one byte
  int64_t total_bytes = 0;              ///< over all links
  int64_t least_bytes = 0;              ///< least bytes that the operator needs; 0 = unknown

  [[nodiscard]] bool ok() const { return violations.empty(); }
};

/// Prove that `plan` computes what `wanted` specifies, for any number of workers, any interleaving, and successive
/// calls. Sound: it refuses a plan that it cannot prove.
[[nodiscard]] CheckResult check(const Plan& plan, const Specification& wanted);
/// The same for the problem in the plan's note. Its operator must be in the table (src/operators).
[[nodiscard]] CheckResult check(const Plan& plan);
/// Throw Error(refused_plan) with the texts of all violations unless `check(plan)` is ok.
void require_proven(const Plan& plan);

/// Bytes over each link; proves nothing.
[[nodiscard]] std::vector<LinkTraffic> traffic_of(const Plan& plan);

}  // namespace tilewire
