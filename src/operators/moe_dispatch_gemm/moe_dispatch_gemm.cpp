// A step of mixture of experts: tokens to the groups of their experts, and the first product.
// Listed in operators.cpp.
#include "operators/moe_dispatch_gemm/moe_dispatch_gemm.hpp"

#include "operators/expert_steps.hpp"

namespace tilewire {

Operator moe_dispatch_gemm() {
  constexpr ExpertSteps kSteps{.second = false, .combine = false};
  return operator_of_steps<kSteps>(
      "moe_dispatch_gemm",
      "expert_h[group] = activation(X w13[e]) of the tokens that have the expert e of the group; and the handle");
}

}  // namespace tilewire
