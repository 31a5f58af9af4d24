// The table entry of gemm_reduce_scatter_cols.
// Called by src/operators/operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator gemm_reduce_scatter_cols();

}  // namespace tilewire
