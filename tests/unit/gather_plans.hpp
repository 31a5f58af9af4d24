// Plans of AllGather + GEMM over four ranks, 256 columns, 64 deep.
// Used by gather_test.cpp and gather_columns_test.cpp.
#pragma once

#include "tilewire/tilewire.hpp"

namespace tilewire {

inline constexpr int kGatherRanks = 4;

inline Plan gather_plan(int64_t m, const Config& config, bool gathered = false) {
  Problem problem{.op = "all_gather_gemm", .m = m, .n = 256, .k = 64};
  problem.gathered_output = gathered;
  return make_plan(problem, {.num_ranks = kGatherRanks}, config);
}

}  // namespace tilewire
