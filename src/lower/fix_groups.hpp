// Gives the groups of a plan fixed numbers of rows, so that it can be timed: an ordinary plan with the same work.
// Called by the command line, the tuner and Python before a simulation.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// Whether a plan has grouped buffers.
[[nodiscard]] bool has_groups(const Plan& plan);

/// Rows of each group of a routing task, in the order of its groups.
using RowsOfGroups = std::function<std::vector<int64_t>(const Task& route)>;

/// RouteParams::load; by default equal numbers of tokens for all experts.
[[nodiscard]] std::vector<int64_t> expected_rows(const Task& route);
/// The expert on place i of a random order, the same for all ranks, gets 1 / i of the tokens of the first one.
[[nodiscard]] std::vector<int64_t> zipf_rows(const Task& route);

/// The plan with grouped buffers of so many rows: routing becomes a copy of its input, and a grouped GEMM a tile of
/// GemmParams for each block of rows and columns, if gated two. A sum of experts reads the rank's share of a token's
/// rows. The result is for the simulator alone: it computes nothing. Throws Error(unsupported) if a wait is for some of
/// the posts of several tiles.
[[nodiscard]] Plan fix_groups(const Plan& plan, const RowsOfGroups& rows = expected_rows);

}  // namespace tilewire
