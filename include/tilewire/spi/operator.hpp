// An operator: a problem's rules, its buffers, their meaning, and its reference result. One folder
// each in src/operators; the table is src/operators/operators.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tilewire/check.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/tensor.hpp"

namespace tilewire {

/// The steps of a layer of experts that an operator has, one after the other.
struct ExpertSteps {
  bool dispatch = true;  ///< routing, and tokens to the groups of their experts
  bool first = true;     ///< the product with w13, and the activation
  bool second = true;    ///< the product with w2
  bool combine = true;   ///< the sums by weight, at the tokens' owners

  bool operator==(const ExpertSteps&) const = default;
};

/// The steps of an operator, in this order: a collective on A, a product, a collective on the result. Schedules and the
/// command line read the structure, never the operator's name.
struct Structure {
  Collective before = Collective::none;
  bool multiplies = true;  ///< if not, the problem has no k, and the input is x
  Collective after = Collective::none;
  bool experts = false;     ///< mixture of experts: routing, two products of groups, sums by weight (Problem::experts)
  ExpertSteps steps{};      ///< of `experts`; all of them: the whole layer
  bool by_columns = false;  ///< ranks hold columns of the gathered matrix, or keep columns of the result

  bool operator==(const Structure&) const = default;
};

/// Whether the output is whole rows of a sum over ranks.
[[nodiscard]] inline bool leaves_summed_rows(const Structure& structure) {
  const bool sums = structure.after == Collective::all_reduce || structure.after == Collective::reduce_scatter;
  return sums && !structure.by_columns;
}

/// Whether each rank multiplies by a B of its own, and blocks of rows of the products are exchanged.
[[nodiscard]] inline bool has_own_b(const Structure& structure) {
  return structure.after == Collective::all_to_all && !structure.by_columns;
}

/// One row of the table of operators. Functions take a validated problem.
struct Operator {
  const char* name;
  const char* summary;
  Structure structure{};
  /// Throw Error(invalid_input) with the broken rule. Called after the rules that hold for all operators.
  void (*validate)(const Problem&, int num_ranks);
  /// Callers' buffers in the order of `Op::run`: scope input or output, with a shape per rank.
  std::vector<Buffer> (*buffers)(const Problem&, int num_ranks);
  /// The meaning of the buffers; Meaning::buffer is an index into `buffers`.
  std::vector<Meaning> (*meanings)(const Problem&, int num_ranks);
  /// Least bytes that must cross links, summed over all ranks.
  int64_t (*least_bytes)(const Problem&, int num_ranks);
  /// The reference that defines the result: plain loops, sums in double, all ranks at once. `tensors[rank]` has the
  /// rank's inputs, then its outputs, in the order of `buffers`.
  void (*reference)(const Problem&, const std::vector<std::vector<Tensor>>& tensors);
};

[[nodiscard]] std::span<const Operator> operators();
/// Throw Error(invalid_input) that lists the known names.
[[nodiscard]] const Operator& find_operator(const std::string& name);
/// The structure of the problem's operator.
[[nodiscard]] const Structure& structure_of(const Problem& problem);
/// The specification that the checker proves for a plan of the problem. Throws Error(invalid_input) for a broken rule.
[[nodiscard]] Specification specification_of(const Problem& problem, int num_ranks);
/// Check all rules of a problem that hold for every schedule. Throws Error(invalid_input).
void validate(const Problem& problem, int num_ranks);

}  // namespace tilewire
