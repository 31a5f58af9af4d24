// A step of mixture of experts: tokens to the groups of their experts, without the products.
// Listed in operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator moe_dispatch();

}  // namespace tilewire
