// Problems and knobs whose plans call the vendor's GEMM once per rank.
// Used by unit/stage_gemm_call_test.cpp and cuda/stream_ordered_gemm_test.cpp.
#pragma once

#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"

namespace tilewire::testing {

inline const Problem kGather{.op = "all_gather_gemm", .m = 512, .n = 1024, .k = 512};
inline const Problem kScatter{.op = "gemm_reduce_scatter", .m = 512, .n = 1024, .k = 512};
inline const Problem kSum{.op = "gemm_all_reduce", .m = 512, .n = 1024, .k = 512, .arena = {"c"}};
/// Copies by worker CTAs, then the call.
inline const Config kWorkers{
    .schedule = "sequential", .copy_workers = 8, .chunk_rows = 32, .compute = Provider::library};

/// The call, then sums that pull.
inline Config pulls() {
  Config config{.schedule = "sequential", .tile_m = 32, .tile_n = 128, .compute = Provider::library};
  config.reduce_mode = ReduceMode::pull;
  return config;
}

}  // namespace tilewire::testing
