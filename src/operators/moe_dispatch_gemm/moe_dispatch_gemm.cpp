// A step of mixture of experts: tokens to the groups of their experts, and the first product.
// Listed in operators.cpp.
#include "operators/moe_dispatch_gemm/moe_dispatch_gemm.hpp"

#include "operators/expert_steps.hpp"

namespace tilewire {
namespace {

constexpr ExpertSteps kSteps{.second = false, .combine = false};

void validate_steps(const Problem& problem, int num_ranks) { validate_experts(problem, num_ranks, kSteps); }
std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  return buffers_of_steps(problem, num_ranks, kSteps);
}
std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  return meanings_of_steps(problem, num_ranks, kSteps);
}
void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  reference_of_steps(problem, tensors, kSteps);
}

}  // namespace

Operator moe_dispatch_gemm() {
  return {
      .name = "moe_dispatch_gemm",
      .summary =
          "expert_h[group] = activation(X w13[e]) of the tokens that have the expert e of the group; and the handle",
      .structure = {.experts = true, .steps = kSteps},
      .validate = validate_steps,
      .buffers = buffers,
      .meanings = meanings,
      .least_bytes = no_least_bytes,
      .reference = reference};
}

}  // namespace tilewire
