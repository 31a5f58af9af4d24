// Plans of GEMM + AllToAll: a rank makes its rows, and each block of columns or rows goes to the rank that owns it.
// Called by fused.cpp and sequential.cpp, which differ in the config alone.
#pragma once

#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {

/// `config` decides: transport, chunk_rows, copy_lanes, pacing, order, release, split_k, compute.
[[nodiscard]] Plan make_all_to_all_plan(const Problem& problem, const Team& team, const Config& config);
/// Rows of the table of candidates of `fused`.
[[nodiscard]] std::vector<Way> ways_of_exchanges();

}  // namespace tilewire
