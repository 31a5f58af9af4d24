// The names of the operators in the table, all or those of some structures, for tests over them.
// Used by tests.
#pragma once

#include <vector>

#include "tilewire/spi/operator.hpp"

namespace tilewire::testing {

/// In the table's order. `wanted`: null, or a filter of structures.
inline std::vector<const char*> operator_names(bool (*wanted)(const Structure&) = nullptr) {
  std::vector<const char*> names;
  for (const Operator& op : operators()) {
    if (wanted == nullptr || wanted(op.structure)) names.push_back(op.name);
  }
  return names;
}

/// Whether the operator has a GEMM.
inline bool has_gemm(const Structure& structure) { return structure.multiplies; }

}  // namespace tilewire::testing
