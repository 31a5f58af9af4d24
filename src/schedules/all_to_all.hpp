// Plans of GEMM + AllToAll: a rank makes its rows, and each column block goes to the rank that owns it.
// Called by fused.cpp and sequential.cpp, which differ in the config alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Why a knob says nothing for such a plan of `fused`, or nothing.
[[nodiscard]] std::optional<std::string> refuses_all_to_all(const Config& config);
/// `config` decides: transport, chunk_rows, copy_lanes, pacing, order, release, split_k, compute.
[[nodiscard]] Plan make_all_to_all_plan(const Problem& problem, const Team& team, const Config& config);
/// What `fused` measures, most promising first.
[[nodiscard]] std::vector<Config> all_to_all_choices(const Problem& problem, const Team& team);

}  // namespace tilewire
