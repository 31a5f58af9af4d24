// Plans whose collective is one call of the vendor's library, before or after the GEMM.
// Called by sequential.cpp.
#pragma once

#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {

/// Rules of collective = library: knobs that have no meaning beside it, sums that must be repeatable, shares that
/// differ.
[[nodiscard]] std::vector<KnobRule> rules_of_collectives();
/// A plan for a config that breaks no rule.
[[nodiscard]] Plan make_collective_plan(const Problem& problem, const Team& team, const Config& config);

}  // namespace tilewire
