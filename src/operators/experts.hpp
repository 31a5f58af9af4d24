// Mixture of experts: rules, placement, and the routing of each rank.
// Called by the operators with experts, their schedules and the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tilewire/body.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {

/// Groups begin at multiples of so many rows, which suits the stores of tiles.
inline constexpr int64_t kGroupAlign = 8;

/// Throw Error(invalid_input) with the broken rule of Problem::experts, for an operator of these steps.
void validate_experts(const Problem& problem, int num_ranks, const ExpertSteps& steps = {});
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
/// Rows of memory of the groups, enough for any routing on any rank.
[[nodiscard]] int64_t most_rows_of_groups(const Problem& problem, int num_ranks);

}  // namespace tilewire
