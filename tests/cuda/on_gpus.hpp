// The fixture of every operator on GPUs: ranks that share one where there are fewer, as threads, against the reference.
// Included by operators_test.cpp, which makes its instances, and operator_tiles_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "backends/cuda/cuda.hpp"
#include "operators/run_case.hpp"
#include "schedules/variants.hpp"
#include "tilewire/schedule.hpp"

namespace tilewire::testing {

inline constexpr const char* kOperators[] = {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"};

inline std::vector<Config> few(std::vector<Config> configs, size_t most, uint64_t seed) {
  std::vector<Config> some;
  std::mt19937_64 random(seed);
  std::sample(configs.begin(), configs.end(), std::back_inserter(some), most, random);
  return some;
}

class OnGpus : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  void SetUp() override {
    if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
  }
  [[nodiscard]] const char* op() const { return std::get<0>(GetParam()); }
  [[nodiscard]] int ranks() const { return std::get<1>(GetParam()); }
  void expect(const Problem& problem, const Config& base, size_t most, uint64_t seed, int calls = 2) const {
    const auto configs = few(all_variants(problem, {.num_ranks = ranks()}, base), most, seed);
    if (configs.empty()) return;
    expect_right(problem, ranks(), configs, {.num_calls = calls, .backend = "cuda", .timeout_s = 10, .seed = seed});
  }
};

}  // namespace tilewire::testing
