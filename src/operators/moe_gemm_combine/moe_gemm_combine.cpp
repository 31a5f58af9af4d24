// A step of mixture of experts: the second product, and its rows, by weight, to the owners of their tokens.
// Listed in operators.cpp.
#include "operators/moe_gemm_combine/moe_gemm_combine.hpp"

#include "operators/expert_steps.hpp"

namespace tilewire {

Operator moe_gemm_combine() {
  constexpr ExpertSteps kSteps{.dispatch = false, .first = false};
  return operator_of_steps<kSteps>(
      "moe_gemm_combine",
      "C[shard] = sum of weights * (expert_h[row] w2[e]) over the rows of each token, by the handle of a routing");
}

}  // namespace tilewire
