// Plans that sum partial results of all ranks: GEMM + ReduceScatter, GEMM + AllReduce, AllReduce.
// Called by fused.cpp, two_stream.cpp and sequential.cpp, which differ in the config alone.
#pragma once

#include "schedules/partition.hpp"
#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Who sums what: of a reduce-scatter whoever keeps it, of another sum `otherwise`.
[[nodiscard]] Ownership ownership_of(const Problem& problem, Ownership otherwise);
/// `config` decides: transport, reduction, algorithm, reduce_when, release, chunk_rows, wire, pacing,
/// order, split_k, compute.
[[nodiscard]] Plan make_reduce_plan(const Problem& problem, const Team& team, const Config& config, Ownership share);

}  // namespace tilewire
