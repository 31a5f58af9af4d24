// Mixture of experts: the whole layer.
// Listed in operators.cpp.
#pragma once

#include "tilewire/spi/operator.hpp"

namespace tilewire {

[[nodiscard]] Operator moe();

}  // namespace tilewire
