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

/// What an operator does, in this order: a collective on A, a product, a collective on the result. Schedules and the
/// command line ask for this, never for names.
struct Structure {
  Collective before = Collective::none;
  bool multiplies = true;  ///< without a product the problem has no k, and its input is x
  Collective after = Collective::none;
  bool by_columns = false;  ///< ranks have columns of what the collective gathers, or keep columns of what it scatters

  bool operator==(const Structure&) const = default;
};

/// One row of the table of operators. Functions take a validated problem.
struct Operator {
  const char* name;
  const char* summary;
  Structure structure{};
  /// Throw Error(invalid_input) that names the rule broken. Called after the rules of all operators.
  void (*validate)(const Problem&, int num_ranks);
  /// Callers' buffers in the order of `Op::run`: scope input or output, shapes per rank.
  std::vector<Buffer> (*buffers)(const Problem&, int num_ranks);
  /// What the buffers stand for; `buffer` counts in the order of `buffers`.
  std::vector<Meaning> (*meanings)(const Problem&, int num_ranks);
  /// Bytes that must cross links, over all ranks.
  int64_t (*least_bytes)(const Problem&, int num_ranks);
  /// The living definition: plain loops, double accumulation, all ranks at once. `tensors[rank]` holds
  /// the rank's inputs, then its outputs, in the order of `buffers`.
  void (*reference)(const Problem&, const std::vector<std::vector<Tensor>>& tensors);
};

[[nodiscard]] std::span<const Operator> operators();
/// Throw Error(invalid_input) that lists the known names.
[[nodiscard]] const Operator& find_operator(const std::string& name);
/// The structure of the problem's operator.
[[nodiscard]] const Structure& structure_of(const Problem& problem);
/// What a plan for the problem is to compute. Throws Error(invalid_input) for a broken rule.
[[nodiscard]] Specification specification_of(const Problem& problem, int num_ranks);
/// All rules that a problem must keep, whichever schedule runs it. Throws Error(invalid_input).
void validate(const Problem& problem, int num_ranks);

}  // namespace tilewire
