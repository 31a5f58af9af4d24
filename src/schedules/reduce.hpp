// Plans that sum partial results of all ranks: GEMM + ReduceScatter, GEMM + AllReduce, AllReduce.
// Called by fused.cpp, two_stream.cpp and sequential.cpp, which differ in the config alone.
#pragma once

#include "tilewire/plan.hpp"

namespace tilewire {

/// Who sums which part of the output.
enum class Share {
  rows,    ///< the owner of the rows (reduce-scatter)
  tiles,   ///< a run of whole tiles each
  slices,  ///< 1/n of every tile each
};

/// `config` decides: transport, reduction, algorithm, reduce_when, release, chunk_rows, wire, pacing,
/// order, split_k, compute.
[[nodiscard]] Plan make_reduce_plan(const Problem& problem, const Team& team, const Config& config, Share share);

}  // namespace tilewire
