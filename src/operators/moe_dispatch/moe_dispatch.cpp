// A step of mixture of experts: tokens to the groups of their experts, without the products.
// Listed in operators.cpp.
#include "operators/moe_dispatch/moe_dispatch.hpp"

#include "operators/expert_steps.hpp"

namespace tilewire {

Operator moe_dispatch() {
  constexpr ExpertSteps kSteps{.first = false, .second = false, .combine = false};
  return operator_of_steps<kSteps>(
      "moe_dispatch",
      "expert_x[group] = rows of X whose tokens have the expert of the group; and the handle of the routing");
}

}  // namespace tilewire
