// The table entry of gemm_reduce_scatter.
// Called by src/operators/operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator gemm_reduce_scatter();

}  // namespace tilewire
