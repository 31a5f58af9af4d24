// The table entry of all_reduce.
// Called by src/operators/operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator all_reduce();

}  // namespace tilewire
