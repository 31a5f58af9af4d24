// Plans whose collective is one call of the vendor's library, before or after the GEMM.
// Called by sequential.cpp.
#pragma once

#include <optional>
#include <string>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Why collective = library cannot be done, or nothing: knobs that have no meaning beside it, sums that must be
/// repeatable, shares that differ.
[[nodiscard]] std::optional<std::string> refuses_collective(const Problem& problem, const Team& team,
                                                            const Config& config);
/// What refuses_collective accepts.
[[nodiscard]] Plan make_collective_plan(const Problem& problem, const Team& team, const Config& config);

}  // namespace tilewire
