// The table entry of gemm_all_to_all_rows.
// Called by src/operators/operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator gemm_all_to_all_rows();

}  // namespace tilewire
