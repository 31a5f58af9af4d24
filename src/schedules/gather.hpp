// Plans of AllGather + GEMM: chunks of A travel, tiles of C wait for the chunks that they read.
// Called by fused.cpp and sequential.cpp, which differ in the config alone.
#pragma once

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// `config` decides: direction, algorithm, transport, chunk_rows, pacing, order, release, split_k, compute.
[[nodiscard]] Plan make_gather_plan(const Problem& problem, const Team& team, const Config& config);

}  // namespace tilewire
