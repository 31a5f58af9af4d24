// The fixture of every operator on GPUs against the reference: ranks are threads, and share a GPU if there are too few.
// Included by operators_test.cpp, which makes its instances, and operator_tiles_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/runtime/facts.hpp"
#include "operator_names.hpp"
#include "operators/run_case.hpp"
#include "schedules/variants.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::testing {

inline const std::vector<const char*> kOperators = operator_names();

/// Whether the ranks' partials are summed.
inline bool sums(const Structure& structure) {
  return structure.after == Collective::reduce_scatter || structure.after == Collective::all_reduce;
}

/// At most so many of the configs: one of every schedule and transport in random order, then another of each.
inline std::vector<Config> few(std::vector<Config> configs, size_t most, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::ranges::shuffle(configs, random);
  std::map<std::pair<std::string, Transport>, int> taken;
  std::vector<std::pair<int, Config>> turns;
  for (const Config& config : configs) turns.emplace_back(taken[{config.schedule, config.transport}]++, config);
  std::ranges::stable_sort(turns, {}, &std::pair<int, Config>::first);
  turns.resize(std::min(most, turns.size()));
  std::vector<Config> some;
  for (const auto& [turn, config] : turns) some.push_back(config);
  return some;
}

class OnGpus : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  void SetUp() override {
    if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
  }
  [[nodiscard]] const char* op() const { return std::get<0>(GetParam()); }
  [[nodiscard]] const Structure& structure() const { return find_operator(op()).structure; }
  /// Rows of A, or columns.
  [[nodiscard]] bool gathers() const { return structure().before == Collective::all_gather; }
  [[nodiscard]] int ranks() const { return std::get<1>(GetParam()); }
  [[nodiscard]] bool shares_gpus() const { return ranks() > cuda::num_gpus(); }
  /// Without sums, these configs except those with knobs of sums.
  [[nodiscard]] std::vector<Config> taken(const Problem& problem, std::vector<Config> configs) const {
    std::erase_if(configs, [&](const Config& config) {
      return structure().after == Collective::all_to_all &&
             find_schedule(config.schedule).refuses(problem, {.num_ranks = ranks()}, config).has_value();
    });
    EXPECT_FALSE(configs.empty());
    return configs;
  }
  void expect(const Problem& problem, const Config& base, size_t most, uint64_t seed, int calls = 2) const {
    auto configs = all_variants(problem, {.num_ranks = ranks()}, base);
    // Ranks that share a GPU do not call the library.
    if (shares_gpus()) {
      std::erase_if(configs, [](const Config& config) {
        return config.compute == Provider::library || config.collective == Provider::library;
      });
    }
    configs = few(configs, most, seed);
    if (configs.empty()) return;
    expect_right(problem, ranks(), configs, {.num_calls = calls, .backend = "cuda", .timeout_s = 10, .seed = seed});
  }
};

}  // namespace tilewire::testing
