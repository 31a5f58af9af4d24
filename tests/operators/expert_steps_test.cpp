// The steps of mixture of experts, each an operator of its own, on CPU ranks against the reference; and one after the
// other against the whole layer.
// Built as part of the target `operators`.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "operators/random_data.hpp"
#include "operators/routing.hpp"
#include "operators/run_case.hpp"
#include "operators/verify.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::testing {
namespace {

constexpr std::array kSteps{"moe_dispatch", "moe_combine", "moe_dispatch_gemm", "moe_gemm_combine"};

Problem step(const char* op, int64_t m, Experts experts, DType dtype = DType::fp32) {
  return {.op = op, .m = m, .n = 12, .k = 16, .dtype = dtype, .experts = std::move(experts)};
}

bool dispatches(const Problem& problem) { return structure_of(problem).steps.dispatch; }

std::vector<Config> configs_of(const Problem& problem) {
  std::vector<Config> configs{{.schedule = "fused"}, {.schedule = "sequential"}};
  if (dispatches(problem)) {
    configs.push_back({.schedule = "sequential", .copy_workers = 1});
  } else {
    configs.push_back({.schedule = "fused", .chunk_cols = 5});
    configs.push_back({.schedule = "fused", .wire = DType::fp32});
  }
  return configs;
}

/// Run under all configs, with every plan proven.
void expect_step(const Problem& problem, int ranks, CaseOptions options = {}) {
  options.op.check = true;
  expect_right(problem, ranks, configs_of(problem), options);
}

void expect_steps(int64_t m, const Experts& experts, int ranks, DType dtype = DType::fp32) {
  for (const char* op : kSteps) expect_step(step(op, m, experts, dtype), ranks);
}

TEST(ExpertSteps, AnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) expect_steps(23, {.count = 8, .top_k = 2, .ffn = 10}, ranks);
}

TEST(ExpertSteps, TypesAndLayouts) {
  for (const char* op : kSteps) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
        Problem problem = step(op, 40, {.count = 6, .top_k = 3, .ffn = 14}, dtype);
        problem.b_layout = layout;
        expect_step(problem, 2);
      }
    }
  }
}

TEST(ExpertSteps, Activations) {
  using enum Activation;
  for (const Activation activation : {none, relu, gelu, silu, swiglu, swiglu_pairs})
    expect_step(step("moe_dispatch_gemm", 17, {.count = 4, .top_k = 2, .ffn = 9, .activation = activation}), 2);
}

TEST(ExpertSteps, AwkwardNumbers) {
  expect_steps(1, {.count = 4, .top_k = 1, .ffn = 3}, 4);
  expect_steps(5, {.count = 3, .top_k = 3, .ffn = 8}, 4);  // a rank has no expert
  expect_steps(0, {.count = 4, .top_k = 2, .ffn = 3}, 2);
  expect_steps(33, {.count = 1, .top_k = 1, .ffn = 8}, 3);
}

TEST(ExpertSteps, SharedExpertsAndReplicas) {
  for (const int ranks : {1, 2, 3}) {
    expect_steps(22, {.count = 4, .top_k = 2, .ffn = 8, .shared = 1}, ranks);
    expect_steps(22, {.count = 5, .top_k = 3, .ffn = 8, .shared = 2}, ranks, DType::bf16);
  }
  expect_steps(30, {.count = 4, .top_k = 2, .ffn = 8, .placement = {{3, 0}, {}, {1, 2}}}, 3);
  expect_steps(31, {.count = 4, .top_k = 2, .ffn = 8, .shared = 1, .placement = {{0, 1, 2}, {2, 3, 0}}}, 2);
}

TEST(ExpertSteps, TensorsInTheArena) {
  const Experts experts{.count = 5, .top_k = 2, .ffn = 8};
  for (const auto& [op, names] : {std::pair{"moe_dispatch", std::vector<std::string>{"x", "expert_x", "extents"}},
                                  std::pair{"moe_combine", std::vector<std::string>{"expert_y"}},
                                  std::pair{"moe_gemm_combine", std::vector<std::string>{"expert_h", "places", "c"}}}) {
    Problem problem = step(op, 23, experts);
    problem.arena = names;
    expect_step(problem, 3);
  }
}

TEST(ExpertSteps, ExtremeRouting) {
  const auto all_to_two = [](int64_t, int32_t* experts) { experts[0] = 7, experts[1] = 6; };
  for (const char* op : {"moe_dispatch", "moe_dispatch_gemm"})
    expect_step(step(op, 40, {.count = 8, .top_k = 2, .ffn = 10}, DType::bf16), 4, routed_by(all_to_two));
  // A handle that is an input has a random routing by load.
  for (const char* op : {"moe_combine", "moe_gemm_combine"})
    expect_step(step(op, 40, {.count = 8, .top_k = 2, .ffn = 10, .load = {0, 0, 0, 0, 0, 0, 1, 1}}, DType::bf16), 4);
}

TEST(ExpertSteps, DroppedRows) {
  const auto to_one = [](int64_t token, int32_t* experts) { experts[0] = 5, experts[1] = token % 4 == 0 ? 4 : 0; };
  for (const int64_t most : {1, 7, 30, 500}) {
    const Experts experts{.count = 6, .top_k = 2, .ffn = 8, .shared = most % 2, .max_rows = most, .drops = true};
    expect_steps(40, experts, 2);
    for (const char* op : {"moe_dispatch", "moe_dispatch_gemm"})
      expect_step(step(op, 40, experts), 3, routed_by(to_one));
  }
}

/// One call of a step with copies of some tensors as its inputs.
void run_step(Group& group, const Problem& problem, std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  Op op = make_op(group, problem, Config{.schedule = "fused"}, {.check = true});
  op.run_and_wait(inputs, outputs);
}

TEST(ExpertSteps, TwoStepsGiveTheBitsOfTheLayer) {
  constexpr int kRanks = 3;
  const Experts experts{.count = 7, .top_k = 3, .ffn = 10, .shared = 1};
  const Problem whole = step("moe", 29, experts, DType::bf16);
  const Problem first = step("moe_dispatch_gemm", 29, experts, DType::bf16);
  const Problem second = step("moe_gemm_combine", 29, experts, DType::bf16);
  std::vector<RankTensors> of_layer = make_tensors(whole, kRanks, 3);
  std::vector<RankTensors> of_first = make_tensors(first, kRanks, 4);
  std::vector<RankTensors> of_second = make_tensors(second, kRanks, 5);
  launch(kRanks, {.threads = true}, [&](Group& group) {
    const int rank = group.team().rank;
    const std::vector<Tensor>& all = of_layer[rank].tensors;
    const std::span<const Tensor> left = std::span(of_first[rank].tensors).subspan(4);
    const Tensor& c = of_second[rank].tensors.back();
    run_step(group, whole, std::span(all).first(5), std::span(all).subspan(5));
    run_step(group, first, std::span(all).first(4), left);
    // The handle serves several calls.
    for (int call = 0; call < 2; ++call) {
      std::memset(c.data, 0xFF, static_cast<size_t>(c.rows * c.cols * bytes_of(c.dtype)));
      const std::array inputs{left[0], left[1], left[2], left[3], all[4]};
      run_step(group, second, inputs, std::span(&c, 1));
      EXPECT_EQ(std::memcmp(c.data, all[5].data, static_cast<size_t>(c.rows * c.cols * bytes_of(c.dtype))), 0);
    }
  });
}

/// The error of a combine whose tensor number `tensor` begins with `value`.
std::string error_of(const char* op, size_t tensor, int32_t value) {
  const Problem problem = step(op, 10, {.count = 4, .top_k = 2, .ffn = 6});
  std::vector<RankTensors> ranks = make_tensors(problem, 1, 1);
  *static_cast<int32_t*>(ranks[0].tensors[tensor].data) = value;
  std::string text;
  launch(1, {.threads = true}, [&](Group& group) {
    const std::span<const Tensor> tensors(ranks[0].tensors);
    try {
      run_step(group, problem, tensors.first(tensors.size() - 1), tensors.last(1));
    } catch (const Error& error) {
      text = error.what();
    }
  });
  return text;
}

TEST(ExpertSteps, ABadHandleIsAnError) {
  EXPECT_NE(error_of("moe_gemm_combine", 1, -1).find("group 0 has the rows -1.."), std::string::npos);
  EXPECT_NE(error_of("moe_gemm_combine", 1, 1000).find("want some of 0.."), std::string::npos);
  EXPECT_NE(error_of("moe_combine", 2, 1000).find("index 1000 of a table of"), std::string::npos);
  EXPECT_EQ(error_of("moe_combine", 3, 0), "");
}

TEST(ExpertSteps, VerificationLooksAtRowsInGroups) {
  for (const int64_t reference_work : {int64_t{1} << 40, int64_t{0}}) {  // all rows, and samples
    const Problem problem = step("moe_dispatch_gemm", 9, {.count = 4, .top_k = 2, .ffn = 6});
    std::vector<RankTensors> ranks = make_tensors(problem, 2, 1);
    find_operator(problem.op).reference(problem, {ranks[0].tensors, ranks[1].tensors});
    const Expected expected(problem, 2, 0, random_inputs(problem, 2, 1), {.reference_work = reference_work});
    const std::span<const Tensor> outputs = std::span(ranks[0].tensors).subspan(4);
    const auto verified = [&] { return expected.compare(outputs, tolerance_of(problem, Config{})).ok(); };
    EXPECT_TRUE(verified());
    const auto* extents = static_cast<const int32_t*>(outputs[1].data);
    const int64_t end = extents[2];  // of the first group
    ASSERT_GT(end, 0);
    ASSERT_LT(end, extents[1]) << "no row is between the groups";
    auto* rows = static_cast<float*>(outputs[0].data);
    rows[end * 6] = 1e9F;  // in no group
    EXPECT_TRUE(verified());
    const float right = std::exchange(rows[2], 1e9F);
    EXPECT_FALSE(verified());
    rows[2] = right;
    ++static_cast<int32_t*>(outputs[2].data)[0];
    EXPECT_FALSE(verified());
  }
}

TEST(ExpertSteps, BadProblemsAreRefusedByName) {
  const auto refused = [](const Problem& problem, const Config& config, const std::string& text) {
    try {
      static_cast<void>(make_plan(problem, {.num_ranks = 2}, config));
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  const Experts experts{.count = 4, .top_k = 2, .ffn = 4};
  for (const char* op : kSteps)
    refused(step(op, 4, experts), {.schedule = "fused", .dispatch = Dispatch::per_rank}, "knob dispatch = per_rank");
  refused(step("moe_dispatch", 4, experts), {.schedule = "fused", .wire = DType::fp32}, "knob wire = fp32");
  refused(step("moe_gemm_combine", 4, {.count = 4, .top_k = 2}), {}, "ffn = 0, want 1");
  Problem no_columns = step("moe_dispatch_gemm", 4, experts);
  no_columns.k = 0;
  refused(no_columns, {}, "k = 0");
}

}  // namespace
}  // namespace tilewire::testing
