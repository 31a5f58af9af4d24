// A step of mixture of experts: tokens to the groups of their experts, and the first product.
// Listed in operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator moe_dispatch_gemm();

}  // namespace tilewire
