// The pass stage_gemm_call: one library call between two kernels; lanes are cut into stages, and the plan is proven.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>

#include "every.hpp"
#include "lower/passes.hpp"
#include "schedules/variants.hpp"
#include "stream_ordered_problems.hpp"
#include "tilewire/check.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire {
namespace {

using testing::kGather;
using testing::kScatter;
using testing::kSum;
using testing::kWorkers;
using testing::pulls;

/// Assign engines as on GPUs, then make stages; the plan is proven.
std::string stage(Plan& plan) {
  const Target target = gpu_target("h200", plan.team.num_ranks, 132);
  static_cast<void>(lowering::assign_engines(plan, target));
  const std::string note = lowering::stage_gemm_call(plan, target);
  const CheckResult proof = check(plan);
  EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
  return note;
}

bool is_staged(Plan plan) {
  stage(plan);
  return std::ranges::any_of(plan.lanes, [](const Lane& lane) { return lane.stage > 0; });
}

int64_t tasks_in(const Plan& plan, int rank, int stage) {
  int64_t count = 0;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank == rank && lane.stage == stage) count += std::ssize(lane.tasks);
  }
  return count;
}

TEST(StageGemmCall, EveryPlanWithOneCallEndsInStages) {
  int staged = 0;
  int others = 0;
  for (const Problem& problem : {kGather, kScatter, kSum}) {
    for (const int ranks : {1, 2, 3, 4}) {
      const Team team{.num_ranks = ranks};
      for (const Config& config :
           testing::every(all_variants(problem, team, {.tile_m = 64, .tile_n = 128, .chunk_rows = 40}))) {
        if (config.compute != Provider::library) continue;
        Plan plan = make_plan(problem, team, config);
        const int64_t tasks = num_tasks(plan);
        const bool stores = config.transport == Transport::store && problem.op == kSum.op;
        const bool one_each =
            config.collective == Provider::tiles && (stores || config.schedule == std::string("sequential"));
        SCOPED_TRACE(to_string(config) + " on " + std::to_string(ranks) + " ranks");
        stage(plan);
        EXPECT_EQ(num_tasks(plan), tasks) << "no task is lost";
        EXPECT_EQ(from_json_text<Plan>(to_string(plan)), plan);
        const bool has_stages = std::ranges::any_of(plan.lanes, [](const Lane& lane) { return lane.stage > 0; });
        ++(has_stages ? staged : others);
        if (!has_stages) continue;
        for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(tasks_in(plan, rank, 1), 1) << "the call";
        EXPECT_TRUE(one_each || config.schedule != std::string("sequential"));
      }
    }
  }
  EXPECT_GT(staged, 50 / testing::kEvery);
  EXPECT_GT(others, 20 / testing::kEvery) << "collectives, and calls for each chunk";
}

TEST(StageGemmCall, WhatComesBeforeTheCallAndAfterIt) {
  Plan gather = make_plan(kGather, {.num_ranks = 2}, kWorkers);
  EXPECT_EQ(stage(gather), "2 of 2 ranks call the library between two kernels; their order replaces 2 waits");
  EXPECT_GT(tasks_in(gather, 0, 0), 0);
  EXPECT_EQ(tasks_in(gather, 0, 2), 0);
  Plan scatter = make_plan(kScatter, {.num_ranks = 2}, pulls());
  stage(scatter);
  EXPECT_EQ(tasks_in(scatter, 0, 0), 0) << "the call is the first thing";
  EXPECT_GT(tasks_in(scatter, 0, 2), 0);
  const Plan before = scatter;
  EXPECT_EQ(lowering::stage_gemm_call(scatter, gpu_target("h200", 2, 132)), "the schedule has chosen");
  EXPECT_TRUE(scatter == before);
}

TEST(StageGemmCall, ACallThatWaitsForAnotherHasNoStages) {
  Plan plan = make_plan(kScatter, {.num_ranks = 2}, pulls());
  ASSERT_TRUE(is_staged(plan));
  const auto call_of = [&](int rank) -> Task& {
    for (Lane& lane : plan.lanes) {
      if (lane.rank == rank && lane.tasks[0].kind == TaskKind::gemm_call) return lane.tasks[0];
    }
    throw std::logic_error("no call");
  };
  const Signal told{1, num_signals(plan)};
  plan.signals.push_back({"told", told.index, 1});
  call_of(0).posts.push_back({told});
  ASSERT_TRUE(is_staged(plan));
  call_of(1).waits.push_back({told});
  Plan chained = plan;
  EXPECT_EQ(stage(chained), "a call waits for another one");
  EXPECT_EQ(tasks_in(chained, 0, 1), 0);
}

TEST(StageGemmCall, WhatNoCallWaitsForRunsBesideIt) {
  Plan plan = make_plan(kScatter, {.num_ranks = 2}, pulls());
  // Like the exchange beside which `tilewire bench` times a GEMM.
  const int buffer = static_cast<int>(plan.buffers.size());
  plan.buffers.push_back({.name = "sent", .dtype = DType::bf16, .rows = 2, .cols = 64, .scope = Scope::local});
  const Region row{.rank = 0, .buffer = buffer, .rows = 1, .cols = 64};
  plan.lanes.push_back({.rank = 0, .engine = Engine::serial, .name = "beside"});
  plan.lanes.back().tasks = {{.kind = TaskKind::fill, .writes = {{row}}}};
  Plan beside = plan;
  EXPECT_EQ(stage(beside), "a rank moves data beside its call");
  plan.lanes.back().tasks = {Task{}};
  EXPECT_TRUE(is_staged(plan)) << "a handshake may come before";
  // A caller's `gathered` that is completed beside the GEMM.
  Problem gather = kGather;
  gather.gathered_output = true;
  EXPECT_FALSE(is_staged(make_plan(gather, {.num_ranks = 2}, kWorkers)));
}

/// The checker knows stages: a call has no data of a later stage.
TEST(StageGemmCall, StagesInTheWrongOrderAreFound) {
  Plan plan = make_plan(kGather, {.num_ranks = 2}, kWorkers);
  stage(plan);
  for (Lane& lane : plan.lanes) {
    if (lane.rank == 1 && lane.stage == 0 && lane.engine != Engine::library) lane.stage = 2;
  }
  const CheckResult result = check(plan);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.violations[0].rule, Rule::coverage) << result.violations[0].text;
  plan.lanes[0].stage = 16;
  const CheckResult invalid = check(plan);
  ASSERT_FALSE(invalid.ok());
  EXPECT_NE(invalid.violations[0].text.find("stage 16, want 0 to 15"), std::string::npos) << invalid.violations[0].text;
}

}  // namespace
}  // namespace tilewire
