// Plans of mixture of experts, and the knobs of such plans.
// Called by fused.cpp and sequential.cpp, which differ in what overlaps.
#pragma once

#include <vector>

#include "tilewire/spi/schedule.hpp"

namespace tilewire {

/// All ranks get all tokens. With `overlaps` each expert begins when its tokens are there, and columns of the output
/// leave when all experts have made them (Config::chunk_cols); otherwise all of one kind comes first.
[[nodiscard]] Plan make_routed_plan(const Problem& problem, const Team& team, const Config& config, bool overlaps);
/// Rows of knobs of these plans, beside those of tiles.
[[nodiscard]] std::vector<Knob> knobs_of_experts();

}  // namespace tilewire
