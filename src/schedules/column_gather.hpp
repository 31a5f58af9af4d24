// Plans of an all-gather of A's columns + GEMM, and which configs are worth measuring for operators by columns.
// Called by fused.cpp and sequential.cpp, which differ in the config alone, and by gpu_choices.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// `config`: release = all multiplies when all columns are here.
[[nodiscard]] Plan make_column_gather_plan(const Problem& problem, const Team& team, const Config& config);
/// Of a gather of columns, or a reduce-scatter of columns, on GPUs.
[[nodiscard]] std::vector<Config> column_choices(const Problem& problem, const Team& team);

}  // namespace tilewire
