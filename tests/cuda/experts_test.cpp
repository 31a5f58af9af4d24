// Mixture of experts on GPUs against the reference: types, activations, placements, any routing,
// errors. Built as part of the target `cuda_operators`.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/cuda.hpp"
#include "core/text.hpp"
#include "operators/routing.hpp"
#include "operators/run_case.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::testing {
namespace {

Problem layer(int64_t m, Experts experts, DType dtype = DType::bf16) {
  return {.op = "moe", .m = m, .n = 136, .k = 72, .dtype = dtype, .experts = std::move(experts)};
}

class ExpertsOnGpus : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
  }
  [[nodiscard]] static int ranks() { return GetParam(); }
  void expect_layer(const Problem& problem, CaseOptions options = {}) {
    expect_layer(problem,
                 {{.schedule = "sequential"},
                  {.schedule = "fused"},
                  {.schedule = "fused", .chunk_cols = 64},
                  {.schedule = "fused", .dispatch = Dispatch::per_rank},
                  {.schedule = "fused", .dispatch = Dispatch::per_expert}},
                 options);
  }
  void expect_layer(const Problem& problem, const std::vector<Config>& configs, CaseOptions options) {
    options.num_calls = 2;
    options.backend = "cuda";
    options.timeout_s = options.meet ? 120 : 10;
    options.op.check = true;
    options.all_run = true;
    options.seed = ++seed_;
    expect_right(problem, ranks(), configs, options);
  }

 private:
  uint64_t seed_ = 2100;
};

TEST_P(ExpertsOnGpus, TypesAndActivations) {
  using enum Activation;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const Activation activation : {none, relu, gelu, silu, swiglu, swiglu_pairs})
      expect_layer(layer(90, {.count = 6, .top_k = 2, .ffn = 200, .activation = activation}, dtype));
  }
  for (const Activation activation : {silu, swiglu}) {
    Problem turned = layer(90, {.count = 6, .top_k = 2, .ffn = 200, .activation = activation});
    turned.b_layout = BLayout::kn;
    expect_layer(turned);
  }
  Problem wide = layer(40, {.count = 6, .top_k = 3, .ffn = 16});
  wide.out_dtype = DType::fp32;
  expect_layer(wide);
}

TEST_P(ExpertsOnGpus, Sizes) {
  expect_layer(layer(1, {.count = 4, .top_k = 1, .ffn = 8}));
  expect_layer(layer(700, {.count = 64, .top_k = 8, .ffn = 64}));
  expect_layer(layer(2000, {.count = 3, .top_k = 2, .ffn = 136}));
  expect_layer(layer(33, {.count = 300, .top_k = 32, .ffn = 8}));
  Problem large{.op = "moe", .m = 1500, .n = 512, .k = 256, .dtype = DType::bf16};
  large.experts = Experts{.count = 16, .top_k = 4, .ffn = 192};
  expect_layer(large);
}

TEST_P(ExpertsOnGpus, PlacementsAndReplicas) {
  std::vector<std::vector<int64_t>> all(ranks(), {0, 1, 2, 3});
  expect_layer(layer(50, {.count = 4, .top_k = 2, .ffn = 24, .placement = all}));
  all.assign(ranks(), {});
  all[0] = {3, 1, 2, 0};
  expect_layer(layer(50, {.count = 4, .top_k = 2, .ffn = 24, .placement = all}));
}

/// A small layer, for racecheck and memcheck.
TEST_P(ExpertsOnGpus, ForSanitizers) {
  const Experts experts{.count = 4, .top_k = 2, .ffn = 16, .shared = 1, .max_rows = 11, .drops = true};
  expect_layer(layer(30, experts), {{.schedule = "fused"}, {.schedule = "fused", .dispatch = Dispatch::per_expert}},
               {.meet = true});
}

TEST_P(ExpertsOnGpus, ExtremeRouting) {
  const Problem problem = layer(400, {.count = 8, .top_k = 2, .ffn = 40});
  expect_layer(problem, routed_by([](int64_t, int32_t* experts) { experts[0] = 7, experts[1] = 6; }));
  expect_layer(problem, routed_by([](int64_t token, int32_t* experts) {
                 experts[0] = token == 3 ? 0 : 5;
                 experts[1] = 4;
               }));
}

TEST_P(ExpertsOnGpus, SharedExpertsAndMostRows) {
  expect_layer(layer(90, {.count = 6, .top_k = 2, .ffn = 40, .shared = 2}));
  expect_layer(layer(130, {.count = 6, .top_k = 3, .ffn = 40, .shared = 1, .max_rows = 400}));
  for (const int64_t most : {1, 37, 64, 200})
    expect_layer(layer(130, {.count = 6, .top_k = 3, .ffn = 40, .shared = 1, .max_rows = most, .drops = true}));
}

TEST_P(ExpertsOnGpus, StepsApart) {
  for (const char* op : {"moe_dispatch", "moe_combine", "moe_dispatch_gemm", "moe_gemm_combine"}) {
    const auto expect_step = [&](int64_t m, Experts experts, DType dtype) {
      Problem problem = layer(m, std::move(experts), dtype);
      problem.op = op;
      std::vector<Config> configs{{.schedule = "sequential"}, {.schedule = "fused"}};
      if (structure_of(problem).steps.combine) configs.push_back({.schedule = "fused", .chunk_cols = 64});
      expect_layer(problem, configs, {});
    };
    expect_step(0, {.count = 6, .top_k = 2, .ffn = 200}, DType::bf16);
    expect_step(90, {.count = 6, .top_k = 2, .ffn = 200}, DType::bf16);
    expect_step(130, {.count = 6, .top_k = 3, .ffn = 40, .shared = 1}, DType::fp16);
    expect_step(130, {.count = 6, .top_k = 3, .ffn = 40, .max_rows = 37, .drops = true}, DType::bf16);
    std::vector<std::vector<int64_t>> first(ranks());
    first[0] = {3, 1, 2, 0};
    expect_step(50, {.count = 4, .top_k = 2, .ffn = 24, .placement = first}, DType::bf16);
    if (ranks() == 1) expect_step(3000, {.count = 64, .top_k = 8, .ffn = 64}, DType::bf16);
  }
}

/// The error of rank 0 in one call with these tensors, of which the last `num_outputs` are outputs.
std::string error_of(const Problem& problem, const std::vector<RankTensors>& all, size_t num_outputs) {
  std::string text;
  launch(static_cast<int>(all.size()), {.backend = "cuda", .threads = true, .timeout_s = 10}, [&](Group& group) {
    const RankTensors& mine = all[group.team().rank];
    std::vector<Tensor> tensors = mine.tensors;
    std::vector<std::shared_ptr<std::byte>> memory;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto bytes = static_cast<int64_t>(mine.memory[i].size());
      memory.push_back(group.new_memory(bytes));
      group.copy(memory.back().get(), mine.memory[i].data(), bytes);
      tensors[i].data = memory.back().get();
    }
    Op op = make_op(group, problem, Config{.schedule = "fused"});
    const std::span<const Tensor> view(tensors);
    try {
      op.run_and_wait(view.first(view.size() - num_outputs), view.last(num_outputs));
    } catch (const Error& error) {
      if (group.team().rank == 0) text = error.what();
    }
  });
  return text;
}

/// The same if token 2 of a layer has these experts.
std::string error_with(int ranks, std::array<int32_t, 2> experts, int64_t max_rows = 0) {
  const Problem problem = layer(10 * ranks, {.count = 4, .top_k = 2, .ffn = 8, .max_rows = max_rows});
  std::vector<RankTensors> all = make_tensors(problem, ranks, 1);
  std::ranges::copy(experts, experts_of(all[0], 2));
  return error_of(problem, all, 1);
}

/// The same if tensor number `tensor` of a step begins with this value.
std::string error_of_step(int ranks, const char* op, size_t tensor, int32_t value) {
  Problem problem = layer(10 * ranks, {.count = 4, .top_k = 2, .ffn = 8});
  problem.op = op;
  std::vector<RankTensors> all = make_tensors(problem, ranks, 1);
  std::memcpy(all[0].tensors[tensor].data, &value, sizeof(value));
  return error_of(problem, all, 1);
}

TEST_P(ExpertsOnGpus, ABadHandleIsAnError) {
  for (const int32_t value : {-2, 1 << 20}) {
    const std::string place = fmt::format("places of token 0: row {}, want -1 to", value);
    EXPECT_NE(error_of_step(ranks(), "moe_combine", 2, value).find(place), std::string::npos);
    const std::string group = fmt::format("extents: group 0 begins at row {}", value);
    EXPECT_NE(error_of_step(ranks(), "moe_gemm_combine", 1, value).find(group), std::string::npos);
  }
}

TEST_P(ExpertsOnGpus, MoreRowsThanTheBoundAreAnError) {
  EXPECT_NE(error_with(ranks(), {0, 1}, 2).find("rows, max_rows = 2"), std::string::npos);
}

TEST_P(ExpertsOnGpus, ABadExpertIsAnErrorWithItsToken) {
  EXPECT_NE(error_with(ranks(), {0, 4}).find("topk_ids of token 2: expert 4, want 0 to 3"), std::string::npos);
  EXPECT_NE(error_with(ranks(), {-1, 2}).find("topk_ids of token 2: expert -1, want 0 to 3"), std::string::npos);
  EXPECT_NE(error_with(ranks(), {3, 3}).find("topk_ids of token 2: expert 3 twice"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Cuda, ExpertsOnGpus, ::testing::Values(1, 2, 4),
                         [](const auto& test) { return fmt::format("{}_ranks", test.param); });

}  // namespace
}  // namespace tilewire::testing
