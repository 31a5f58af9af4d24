// Mixture of experts: rules, placement, and the routing of each rank.
// Called by the operators with experts, their schedules and the command line.
#pragma once

#include <vector>

#include "tilewire/body.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Throw Error(invalid_input) with the broken rule of Problem::experts.
void validate_experts(const Problem& problem, int num_ranks);
/// The experts of each rank, in the order of its weights: Experts::placement, or equal numbers.
[[nodiscard]] std::vector<std::vector<int64_t>> placement_of(const Experts& experts, int num_ranks);
/// How each rank routes tokens to its experts. The problem is valid.
[[nodiscard]] std::vector<RouteParams> routes_of(const Problem& problem, int num_ranks);

}  // namespace tilewire
