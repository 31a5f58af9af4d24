// The names of the operators in the table, all or those of some structures, for tests over them.
// Used by tests.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "tilewire/spi/operator.hpp"

namespace tilewire::testing {

/// In the table's order, without those with experts, whose problems need more than sizes (experts_test.cpp). `wanted`:
/// null, or a filter of structures.
inline std::vector<const char*> operator_names(bool (*wanted)(const Structure&) = nullptr) {
  std::vector<const char*> names;
  for (const Operator& op : operators()) {
    if (op.structure.experts) continue;
    if (wanted == nullptr || wanted(op.structure)) names.push_back(op.name);
  }
  return names;
}

/// All names.
inline std::vector<const char*> all_operator_names() {
  std::vector<const char*> names;
  for (const Operator& op : operators()) names.push_back(op.name);
  return names;
}

/// The problem with experts if its operator has them; with k = 0 they have no meaning, so k becomes 1.
inline Problem with_experts(Problem problem, Experts experts = {.count = 6, .top_k = 2, .ffn = 24}) {
  if (!find_operator(problem.op).structure.experts) return problem;
  problem.experts = std::move(experts);
  problem.epilogue.clear();
  problem.k = std::max<int64_t>(problem.k, 1);
  return problem;
}

/// Whether the operator has a GEMM.
inline bool has_gemm(const Structure& structure) { return structure.multiplies; }

/// Whether the outputs are parts of one product of one A and one B.
inline bool makes_one_product(const Structure& structure) { return structure.multiplies && !has_own_b(structure); }

}  // namespace tilewire::testing
