// Remarks for users about tiles that run slowly.
// Needs no GPU.
#include "backends/cuda/tables/remarks.hpp"

#include <gtest/gtest.h>

#include "tilewire/make_plan.hpp"

namespace tilewire::cuda {
namespace {

Plan plan_of(const char* op, int64_t m, const Config& config) {
  const Problem problem{.op = op, .m = m, .n = 1024, .k = 512, .dtype = DType::bf16};
  return make_plan(problem, {.num_ranks = 4}, config);
}

TEST(Remarks, NameSlowTiles) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(remarks_on(plan_of("gemm_reduce_scatter", 1024, {})), Lines{});
  EXPECT_EQ(remarks_on(plan_of("gemm_reduce_scatter", 1024, {.tile_m = 32})),
            (Lines{"slow: tiles run without tensor cores: tiles of 32 x 256 are not compiled"}));
  const Problem problem{.op = "all_gather_gemm", .m = 512, .n = 512, .k = 512, .dtype = DType::fp32};
  EXPECT_EQ(remarks_on(make_plan(problem, {.num_ranks = 2}, {})),
            (Lines{"slow: tiles run without tensor cores: type fp32"}));
  EXPECT_EQ(remarks_on(plan_of("all_gather_gemm", 1024, {})), Lines{});
  const Problem odd{.op = "all_gather_gemm", .m = 512, .n = 512, .k = 100, .dtype = DType::bf16};
  EXPECT_EQ(remarks_on(make_plan(odd, {.num_ranks = 2}, {})),
            (Lines{"slow: tiles run without tensor cores: rows of a have 200 bytes, want a multiple of 16"}));
}

}  // namespace
}  // namespace tilewire::cuda
