// The table entry of all_gather_gemm.
// Called by src/operators/operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator all_gather_gemm();

}  // namespace tilewire
