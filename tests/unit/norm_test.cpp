// Norms in plans: the checker proves them and refuses faults; the simulator counts their bytes.
// Built as part of the target `unit`.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/gemm_tasks.hpp"
#include "schedules/variants.hpp"
#include "tilewire/check.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"
#include "tilewire/spi/operator.hpp"
#include "unit/check_plans.hpp"

namespace tilewire {
namespace {

using check_plans::expect_accepted;
using check_plans::expect_refused;

Problem normed_problem(NormKind kind = NormKind::rms) {
  return {
      .op = "gemm_all_reduce", .m = 24, .n = 16, .k = 12, .epilogue = {{EpilogueKind::residual}}, .norm = Norm{kind}};
}

Plan normed_plan(Algorithm algorithm = Algorithm::one_shot, NormKind kind = NormKind::rms) {
  return make_plan(normed_problem(kind), {.num_ranks = 2}, {.tile_m = 8, .tile_n = 8, .algorithm = algorithm});
}

/// The first norm of a plan.
Task& norm_of(Plan& plan) {
  for (Lane& lane : plan.lanes) {
    const auto found = std::ranges::find_if(lane.tasks, is_norm);
    if (found != lane.tasks.end()) return *found;
  }
  throw std::logic_error("the plan has no norm");
}

int buffer_of(const Plan& plan, const std::string& name) {
  return static_cast<int>(std::ranges::find(plan.buffers, name, &Buffer::name) - plan.buffers.begin());
}

TEST(Norms, EveryVariantIsProven) {
  for (const char* op : {"gemm_all_reduce", "gemm_reduce_scatter", "all_reduce"}) {
    for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
      Problem problem = normed_problem(kind);
      problem.op = op;
      if (problem.op == "all_reduce") problem.k = 0;
      problem.reduction = Reduction::any;
      for (const int ranks : {1, 2, 3}) {
        const Team team{.num_ranks = ranks};
        for (const Config& config : all_variants(problem, team, {.tile_m = 8, .tile_n = 8, .chunk_rows = 4}))
          expect_accepted(make_plan(problem, team, config));
      }
    }
  }
}

TEST(Norms, EveryQuantisedVariantIsProven) {
  for (const char* op : {"gemm_all_reduce", "gemm_reduce_scatter", "all_reduce"}) {
    Problem problem = normed_problem();
    problem.op = op;
    problem.norm->out_dtype = problem.op == "all_reduce" ? DType::int8 : DType::fp8_e4m3;
    if (problem.op == "all_reduce") problem.k = 0;
    problem.reduction = Reduction::any;
    for (const int ranks : {1, 3}) {
      const Team team{.num_ranks = ranks};
      for (const Config& config : all_variants(problem, team, {.tile_m = 8, .tile_n = 8, .chunk_rows = 4}))
        expect_accepted(make_plan(problem, team, config));
    }
  }
}

Plan quantised_plan() {
  Problem problem = normed_problem();
  problem.norm->out_dtype = DType::int8;
  return make_plan(problem, {.num_ranks = 2}, {.tile_m = 8, .tile_n = 8, .algorithm = Algorithm::one_shot});
}

TEST(Norms, ScalesAreStoredOnce) {
  Plan plan = quantised_plan();
  norm_of(plan).writes.pop_back();
  expect_refused(plan, Rule::coverage, {"norm_scale", "of an output is never written"});
  plan = quantised_plan();
  Task& norm = norm_of(plan);
  norm.writes.push_back(norm.writes[1]);
  expect_refused(plan, Rule::coverage, {"norm_scale", "has written already in this call"});
}

TEST(Norms, ScalesOfOtherRowsAreRefused) {
  Plan plan = quantised_plan();
  Task& norm = norm_of(plan);
  norm.writes[1].first_col = 0;
  expect_refused(plan, Rule::structure, {"stores columns 0..1 of a norm of 16 columns in", "norm_scale", "of fp32"});
  plan = quantised_plan();
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (is_norm(task) && lane.rank == 0) task.writes[1].to.row = 23 - task.writes[1].to.row;
    }
  }
  expect_refused(plan, Rule::coverage, {"scale of the normed output"});
}

TEST(Norms, WhatIsNotQuantised) {
  const auto error_of = [](const Problem& problem) -> std::string {
    try {
      validate(problem, 2);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Problem problem = normed_problem(NormKind::layer);
  problem.norm->out_dtype = DType::int8;
  EXPECT_NE(error_of(problem).find("a layer norm is not quantised"), std::string::npos) << error_of(problem);
  problem = normed_problem();
  problem.norm->out_dtype = DType::fp16;
  EXPECT_NE(error_of(problem).find("out_dtype = fp16: want fp8_e4m3 or int8"), std::string::npos);
  problem = normed_problem();
  problem.dtype = DType::int8;
  EXPECT_NE(error_of(problem).find("dtype = int8: want fp32, bf16 or fp16"), std::string::npos);
}

TEST(Norms, EveryRowIsNormalisedOnEveryRank) {
  const Plan plan = normed_plan();
  std::vector<int64_t> rows(2, 0);
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) rows[lane.rank] += is_norm(task) ? task.writes[0].to.rows : 0;
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{24, 24}));
}

TEST(Norms, PartOfARowIsRefused) {
  Plan plan = normed_plan();
  Task& norm = norm_of(plan);
  norm.reads[0].cols = norm.writes[0].to.cols = 8;
  expect_refused(plan, Rule::structure, {"a norm takes whole rows"});
  norm.reads[1].cols = 8;
  expect_refused(plan, Rule::structure, {"a norm takes whole rows", "of 1 x 16"});
}

TEST(Norms, PartOfARowWithPartOfTheWeightIsRefused) {
  Plan plan = normed_plan();
  plan.buffers.push_back({.name = "w", .dtype = DType::bf16, .rows = 1, .cols = 8});
  Task& norm = norm_of(plan);
  norm.reads[0].cols = norm.writes[0].to.cols = norm.reads[1].cols = 8;
  norm.reads[1].buffer = static_cast<int>(plan.buffers.size()) - 1;
  expect_refused(plan, Rule::structure, {"not whole rows of 16 columns"});
}

TEST(Norms, ASumThatIsNotRoundedIsRefused) {
  Plan plan = normed_plan();
  plan.buffers.push_back({.name = "s", .dtype = DType::fp32, .rows = 24, .cols = 16});
  norm_of(plan).reads[0].buffer = static_cast<int>(plan.buffers.size()) - 1;
  expect_refused(plan, Rule::structure, {"of fp32: a norm takes the output after its rounding to bf16"});
}

TEST(Norms, OfEmptySumsAndOfFewerRowsThanRanks) {
  for (const char* op : {"gemm_all_reduce", "gemm_reduce_scatter"}) {
    Problem problem{.op = op, .m = 2, .n = 8, .norm = Norm{}};
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::one_shot}) {
      if (problem.op == "gemm_reduce_scatter" && algorithm == Algorithm::one_shot) continue;
      expect_accepted(make_plan(problem, {.num_ranks = 3}, {.tile_m = 8, .tile_n = 8, .algorithm = algorithm}));
    }
  }
}

TEST(Norms, AnotherRowIsRefused) {
  Plan plan = normed_plan();
  norm_of(plan).reads[0].row += 1;
  expect_refused(plan, Rule::coverage, {"normed", "must hold"});
}

TEST(Norms, AWaitThatIsMissingIsRefused) {
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::direct}) {
    Plan plan = normed_plan(algorithm);
    norm_of(plan).waits.clear();
    EXPECT_FALSE(check(plan).ok());
  }
}

TEST(Norms, AResidualIsNoWeight) {
  Plan plan = normed_plan();
  Task& norm = norm_of(plan);
  norm.reads[0].buffer = buffer_of(plan, "residual");
  expect_refused(plan, Rule::coverage, {"reads residual", "where it needs a sum"});
}

TEST(Norms, AnotherEpsIsRefused) {
  Plan plan = normed_plan();
  norm_of(plan).norm.eps = 0.5;
  expect_refused(plan, Rule::structure, {"applies the norm", "the problem's is"});
  norm_of(plan).norm.eps = 0;
  expect_refused(plan, Rule::structure, {"eps = 0: want more than 0"});
}

TEST(Norms, OnlyALayerNormHasABias) {
  Plan plan = normed_plan(Algorithm::one_shot, NormKind::layer);
  expect_accepted(plan);
  norm_of(plan).reads.pop_back();
  expect_refused(plan, Rule::structure, {"only a layer norm has a bias"});
}

TEST(Norms, TakeTimeInTheSimulator) {
  const Simulation with = simulate(normed_plan(), load_machine("h200x4"));
  Problem plain = normed_problem();
  plain.norm.reset();
  const Config config{.tile_m = 8, .tile_n = 8, .algorithm = Algorithm::one_shot};
  const Simulation without = simulate(make_plan(plain, {.num_ranks = 2}, config), load_machine("h200x4"));
  EXPECT_GT(with.total_ns, without.total_ns);
}

}  // namespace
}  // namespace tilewire
