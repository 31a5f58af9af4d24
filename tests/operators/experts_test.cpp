// Mixture of experts on CPU ranks against the reference: types, layouts, activations, placements, and any routing.
// Built as part of the target `operators`.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>

#include "operators/random_data.hpp"
#include "operators/routing.hpp"
#include "operators/run_case.hpp"
#include "tilewire/check.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::testing {
namespace {

Problem layer(int64_t m, Experts experts, DType dtype = DType::fp32) {
  return {.op = "moe", .m = m, .n = 12, .k = 16, .dtype = dtype, .experts = std::move(experts)};
}

std::vector<Config> configs() {
  return {{.schedule = "fused"},
          {.schedule = "fused", .chunk_cols = 5},
          {.schedule = "sequential"},
          {.schedule = "fused", .wire = DType::fp32},
          {.schedule = "fused", .dispatch = Dispatch::per_rank},
          {.schedule = "fused", .chunk_cols = 5, .dispatch = Dispatch::per_expert},
          {.schedule = "sequential", .dispatch = Dispatch::per_rank},
          {.schedule = "sequential", .copy_workers = 1, .dispatch = Dispatch::per_expert}};
}

/// Run under all configs, with every plan proven.
void expect_layer(const Problem& problem, int ranks, CaseOptions options = {}) {
  options.op.check = true;
  expect_right(problem, ranks, configs(), options);
}

TEST(Experts, AnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) expect_layer(layer(23, {.count = 8, .top_k = 2, .ffn = 10}), ranks);
}

TEST(Experts, TypesAndLayouts) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
      Problem problem = layer(40, {.count = 6, .top_k = 3, .ffn = 14}, dtype);
      problem.b_layout = layout;
      expect_layer(problem, 2);
    }
  }
  Problem wide = layer(40, {.count = 6, .top_k = 3, .ffn = 14}, DType::bf16);
  wide.out_dtype = DType::fp32;
  expect_layer(wide, 3);
}

TEST(Experts, RandomRoutingFollowsTheLoad) {
  const ReadRow read = random_inputs(layer(400, {.count = 4, .top_k = 1, .ffn = 4, .load = {6, 1, 1, 0}}), 1, 3);
  std::array<int, 4> tokens{};
  for (int64_t token = 0; token < 400; ++token) {
    float expert = -1;
    read(1, 0, token, &expert);
    ++tokens.at(static_cast<size_t>(expert));
  }
  EXPECT_NEAR(tokens[0], 300, 50);
  EXPECT_NEAR(tokens[1], 50, 30);
  EXPECT_NEAR(tokens[2], 50, 30);
  EXPECT_EQ(tokens[3], 0);
}

TEST(Experts, Activations) {
  using enum Activation;
  for (const Activation activation : {none, relu, gelu, silu, swiglu, swiglu_pairs})
    expect_layer(layer(17, {.count = 4, .top_k = 2, .ffn = 9, .activation = activation}), 2);
}

TEST(Experts, AwkwardNumbers) {
  expect_layer(layer(1, {.count = 4, .top_k = 1, .ffn = 3}), 4);
  expect_layer(layer(5, {.count = 3, .top_k = 3, .ffn = 8}), 4);  // a rank has no expert
  expect_layer(layer(0, {.count = 4, .top_k = 2, .ffn = 3}), 2);
  expect_layer(layer(33, {.count = 1, .top_k = 1, .ffn = 8}), 3);
}

TEST(Experts, PlacementsAndReplicas) {
  expect_layer(layer(30, {.count = 4, .top_k = 2, .ffn = 8, .placement = {{3, 0}, {}, {1, 2}}}), 3);
  expect_layer(layer(30, {.count = 4, .top_k = 2, .ffn = 8, .placement = {{0, 1, 2}, {2, 3, 0}}}), 2);
  expect_layer(layer(31, {.count = 2, .top_k = 1, .ffn = 8, .placement = {{0, 1}, {1, 0}, {0}}}), 3);
}

TEST(Experts, SharedExperts) {
  for (const int ranks : {1, 2, 3}) {
    expect_layer(layer(22, {.count = 4, .top_k = 2, .ffn = 8, .shared = 1}), ranks);
    expect_layer(layer(22, {.count = 5, .top_k = 3, .ffn = 8, .shared = 2}, DType::bf16), ranks);
  }
  expect_layer(layer(1, {.count = 2, .top_k = 1, .ffn = 8, .shared = 1, .placement = {{0, 1}, {}}}), 2);
}

TEST(Experts, RowsBeyondTheMostAreDroppedAndCounted) {
  const auto to_one = [](int64_t token, int32_t* experts) { experts[0] = 5, experts[1] = token % 4 == 0 ? 4 : 0; };
  for (const int64_t most : {1, 7, 30, 500}) {
    Experts experts{.count = 6, .top_k = 2, .ffn = 8, .max_rows = most, .drops = true};
    expect_layer(layer(40, experts), 2);
    expect_layer(layer(40, experts), 2, routed_by(to_one));
    experts.shared = 1;
    expect_layer(layer(40, experts), 3, routed_by(to_one));
    experts.placement = {{0, 1, 2, 5}, {3, 4, 5, 0}};
    expect_layer(layer(40, experts, DType::bf16), 2, routed_by(to_one));
  }
}

TEST(Experts, ExtremeRouting) {
  const Problem problem = layer(40, {.count = 8, .top_k = 2, .ffn = 10}, DType::bf16);
  const auto all_to_two = [](int64_t, int32_t* experts) { experts[0] = 7, experts[1] = 6; };
  const auto one_token_elsewhere = [](int64_t token, int32_t* experts) {
    experts[0] = token == 3 ? 0 : 5, experts[1] = 4;
  };
  expect_layer(problem, 4, routed_by(all_to_two));
  expect_layer(problem, 4, routed_by(one_token_elsewhere));
}

TEST(Experts, ANaNStaysInItsToken) {
  CaseOptions options;
  options.change_inputs = [](std::vector<RankTensors>& ranks) {
    static_cast<float*>(ranks[0].tensors[0].data)[3] = NAN;
    static_cast<float*>(ranks[1].tensors[2].data)[2] = NAN;
  };
  expect_layer(layer(12, {.count = 4, .top_k = 2, .ffn = 6}), 2, options);
}

/// The errors of two ranks if token 7 has these experts.
std::array<std::string, 2> errors_of(std::array<int32_t, 2> experts, int64_t max_rows = 0) {
  const Problem problem = layer(10, {.count = 4, .top_k = 2, .ffn = 6, .max_rows = max_rows});
  std::vector<RankTensors> ranks = make_tensors(problem, 2, 1);
  std::ranges::copy(experts, experts_of(ranks[1], 2));
  std::array<std::string, 2> errors;
  launch(2, {.threads = true}, [&](Group& group) {
    const std::span<const Tensor> tensors(ranks[group.team().rank].tensors);
    Op op = make_op(group, problem, Config{.schedule = "fused"});
    try {
      op.run_and_wait(tensors.first(5), tensors.subspan(5));
    } catch (const Error& error) {
      errors[group.team().rank] = error.what();
    }
  });
  return errors;
}

TEST(Experts, ABadExpertIsAnErrorWithItsToken) {
  const auto expect_error = [](std::array<int32_t, 2> experts, const char* text) {
    for (const std::string& error : errors_of(experts)) EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  expect_error({0, 4}, "topk_ids of token 7: expert 4, want 0 to 3");
  expect_error({-1, 2}, "topk_ids of token 7: expert -1, want 0 to 3");
  expect_error({3, 3}, "topk_ids of token 7: expert 3 twice");
}

TEST(Experts, RowsBeyondTheMostAreAnError) {
  for (const std::string& error : errors_of({0, 1}, 3))
    EXPECT_NE(error.find("max_rows = 3"), std::string::npos) << error;
  for (const std::string& error : errors_of({0, 1}, 20)) EXPECT_EQ(error, "");
}

TEST(Experts, BadNumbersAreRefusedByName) {
  const auto refused = [](Problem problem, const std::string& text) {
    try {
      validate(problem, 2);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  refused({.op = "moe", .m = 4, .n = 4, .k = 4}, "want experts");
  refused(layer(4, {.count = 4, .top_k = 5, .ffn = 4}), "top_k = 5, want 1 to 4");
  refused(layer(4, {.count = 4, .top_k = 2, .ffn = 0}), "ffn = 0, want 1");
  refused(layer(4, {.count = 4, .top_k = 2, .ffn = 4, .shared = -1}), "shared = -1, want 0");
  refused(layer(4, {.count = 4, .top_k = 2, .ffn = 4, .max_rows = -1}), "max_rows = -1, want at least 1");
  refused(layer(4, {.count = 4, .top_k = 2, .ffn = 4, .drops = true}), "drops = true without max_rows");
  refused(layer(4, {.count = 4, .top_k = 2, .ffn = 4, .load = {1, 2}}), "load of 2 experts, want 4");
  refused(layer(4, {.count = 2, .top_k = 1, .ffn = 4, .load = {1, -2}}), "load = -2, want at least 0");
  refused(layer(4, {.count = 2, .top_k = 1, .ffn = 4, .load = {0, 0}}), "loads add up to 0");
  refused(layer(4, {.count = 4, .top_k = 2, .ffn = 4, .placement = {{0, 1}}}), "a placement on 1 ranks, want 2");
  refused(layer(4, {.count = 4, .top_k = 2, .ffn = 4, .placement = {{0, 1}, {2}}}), "expert 3 is on no rank");
  refused(layer(4, {.count = 4, .top_k = 2, .ffn = 4, .placement = {{0, 1}, {2, 4}}}), "expert 4 on rank 1");
  refused(layer(4, {.count = 4, .top_k = 2, .ffn = 4, .placement = {{0, 1, 0}, {2, 3}}}),
          "expert 0 is twice on rank 0");
  Problem other{.op = "gemm_all_reduce", .m = 4, .n = 4, .k = 4, .experts = Experts{4, 2, 4}};
  refused(other, "experts: gemm_all_reduce has none");
}

}  // namespace
}  // namespace tilewire::testing
