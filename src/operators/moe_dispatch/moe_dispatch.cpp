// A step of mixture of experts: tokens to the groups of their experts, without the products.
// Listed in operators.cpp.
#include "operators/moe_dispatch/moe_dispatch.hpp"

#include "operators/expert_steps.hpp"

namespace tilewire {
namespace {

constexpr ExpertSteps kSteps{.first = false, .second = false, .combine = false};

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

Operator moe_dispatch() {
  return {
      .name = "moe_dispatch",
      .summary = "expert_x[group] = rows of X whose tokens have the expert of the group; and the handle of the routing",
      .structure = {.experts = true, .steps = kSteps},
      .validate = validate_steps,
      .buffers = buffers,
      .meanings = meanings,
      .least_bytes = no_least_bytes,
      .reference = reference};
}

}  // namespace tilewire
