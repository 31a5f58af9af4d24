// A step of mixture of experts: rows of experts, by weight, to the owners of their tokens.
// Listed in operators.cpp.
#include "operators/moe_combine/moe_combine.hpp"

#include "operators/expert_steps.hpp"

namespace tilewire {
namespace {

constexpr ExpertSteps kSteps{.dispatch = false, .first = false, .second = false};

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

Operator moe_combine() {
  return {
      .name = "moe_combine",
      .summary = "C[shard] = sum of weights * expert_y[row] over the rows of each token, by the handle of a routing",
      .structure = {.experts = true, .steps = kSteps},
      .validate = validate_steps,
      .buffers = buffers,
      .meanings = meanings,
      .least_bytes = no_least_bytes,
      .reference = reference};
}

}  // namespace tilewire
