// Configs whose GEMM is one call of the vendor's library between short kernels of one stream, for few or some rows.
// Called by gpu_choices.cpp.
#pragma once

#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/team.hpp"

namespace tilewire {

/// Of `sequential`. Copies by half of the SMs each of what peers get, one peer after the other, and of own rows; sums
/// by all SMs, a slice for each, which read peers' parts where they are.
[[nodiscard]] std::vector<Config> stream_ordered_gemm(const Problem& problem, const Team& team);

/// Of `fused`, for an all-reduce: the call stores each owner's columns there, sums by all SMs as above.
[[nodiscard]] std::vector<Config> columns_at_owners(const Problem& problem, const Team& team);

}  // namespace tilewire
