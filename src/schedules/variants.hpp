// Every combination of knobs that some schedule accepts for a problem: what `tilewire check` proves and
// what the property tests run.
// Called by src/cli/check.cpp and tests.
#pragma once

#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// All values of the knobs that change a plan's structure, over every schedule in the table; tile shape,
/// wire type and a chunk size are taken from `base`. Hundreds of configs.
[[nodiscard]] std::vector<Config> all_variants(const Problem& problem, const Team& team, const Config& base);

}  // namespace tilewire
