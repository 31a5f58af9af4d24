// Plans of an all-gather of A's columns + GEMM, and the candidates of operators by columns.
// Called by fused.cpp and sequential.cpp, which differ in the config alone.
#pragma once

#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {

/// `config`: release = all multiplies when all columns are here.
[[nodiscard]] Plan make_column_gather_plan(const Problem& problem, const Team& team, const Config& config);
/// Rows of the table of candidates of `fused`, for a gather of columns and, on GPUs, a reduce-scatter of columns.
[[nodiscard]] std::vector<Way> ways_of_columns();

}  // namespace tilewire
