// The names of the table of operators, all or those of a structure, for tests that go through them.
// Used by tests.
#pragma once

#include <vector>

#include "tilewire/spi/operator.hpp"

namespace tilewire::testing {

/// In the table's order. `wanted`: nothing, or which structures.
inline std::vector<const char*> operator_names(bool (*wanted)(const Structure&) = nullptr) {
  std::vector<const char*> names;
  for (const Operator& op : operators()) {
    if (wanted == nullptr || wanted(op.structure)) names.push_back(op.name);
  }
  return names;
}

/// Whether there is a GEMM.
inline bool has_gemm(const Structure& structure) { return structure.multiplies; }

}  // namespace tilewire::testing
