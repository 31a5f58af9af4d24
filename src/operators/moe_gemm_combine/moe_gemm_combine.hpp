// A step of mixture of experts: the second product, and its rows, by weight, to the owners of their tokens.
// Listed in operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator moe_gemm_combine();

}  // namespace tilewire
