// A step of mixture of experts: rows of experts, by weight, to the owners of their tokens.
// Listed in operators.cpp.
#include "operators/moe_combine/moe_combine.hpp"

#include "operators/expert_steps.hpp"

namespace tilewire {

Operator moe_combine() {
  constexpr ExpertSteps kSteps{.dispatch = false, .first = false, .second = false};
  return operator_of_steps<kSteps>(
      "moe_combine",
      "C[shard] = sum of weights * expert_y[row] over the rows of each token, by the handle of a routing");
}

}  // namespace tilewire
