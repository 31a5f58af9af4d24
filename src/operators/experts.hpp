// Mixture of experts: rules, placement, and the routing of each rank.
// Called by the operators with experts, their schedules and the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tilewire/body.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Throw Error(invalid_input) with the broken rule of Problem::experts.
void validate_experts(const Problem& problem, int num_ranks);
/// The experts of each rank, in the order of its weights: Experts::placement, or equal numbers; then the shared ones,
/// numbered behind all others.
[[nodiscard]] std::vector<std::vector<int64_t>> placement_of(const Experts& experts, int num_ranks);
/// What Experts::max_rows leaves.
struct KeptRows {
  std::vector<bool> pairs{};       ///< [token * top_k + i]: whether expert i of the token gets it
  std::vector<int64_t> dropped{};  ///< by rank: rows that its experts do not get
};
/// `experts_of(token, experts)` writes the top_k experts of a token. The problem is valid.
[[nodiscard]] KeptRows kept_rows(const Problem& problem, int num_ranks,
                                 const std::function<void(int64_t, float*)>& experts_of);
/// How each rank routes tokens to its experts. The problem is valid.
[[nodiscard]] std::vector<RouteParams> routes_of(const Problem& problem, int num_ranks);

}  // namespace tilewire
