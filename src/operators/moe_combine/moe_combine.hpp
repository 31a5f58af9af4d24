// A step of mixture of experts: rows of experts, by weight, to the owners of their tokens.
// Listed in operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator moe_combine();

}  // namespace tilewire
