// The pass stage_experts: grouped GEMMs between two kernels, and plans that stay proven.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/gemm_tasks.hpp"
#include "lower/lane_roles.hpp"
#include "tilewire/check.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire {
namespace {

Problem layer(Experts experts) {
  return {.op = "moe", .m = 300, .n = 256, .k = 128, .dtype = DType::bf16, .experts = std::move(experts)};
}

Lowered lowered(const Problem& problem, const Config& config, Target target) {
  Lowered made = lower(make_plan(problem, team_of(target, target.ranks), config), target);
  EXPECT_EQ(from_json_text<Plan>(to_string(made.plan)), made.plan);
  const CheckResult proof = check(made.plan);
  EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
  return made;
}

std::string note_of(const Lowered& made) {
  return std::ranges::find(made.notes, std::string("stage_experts"), &PassNote::pass)->text;
}

std::vector<const Lane*> lanes_in(const Plan& plan, int rank, int stage) {
  std::vector<const Lane*> lanes;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank == rank && lane.stage == stage && !lane.tasks.empty()) lanes.push_back(&lane);
  }
  return lanes;
}

TEST(StageExperts, ProductsAreBetweenTwoKernels) {
  for (const char* target : {"h200x1", "h200x2", "h200x4"}) {
    for (const char* schedule : {"sequential", "fused"}) {
      const Lowered made =
          lowered(layer({.count = 10, .top_k = 3, .ffn = 192}), {.schedule = schedule}, find_target(target));
      EXPECT_EQ(note_of(made).find("rank 0: 2 grouped GEMMs, one after another"), 0U) << note_of(made);
      for (int rank = 0; rank < made.plan.team.num_ranks; ++rank) {
        const auto products = lanes_in(made.plan, rank, kCallStage);
        ASSERT_EQ(products.size(), 1U);
        EXPECT_EQ(products[0]->engine, Engine::serial);
        ASSERT_EQ(products[0]->tasks.size(), 2U) << "of all groups";
        for (const Task& task : products[0]->tasks) EXPECT_TRUE(task.waits.empty() && task.posts.empty());
        EXPECT_EQ(lanes_in(made.plan, rank, kStageAfterCall).size(), 1U);
        for (const Lane* lane : lanes_in(made.plan, rank, 0)) {
          const bool groups =
              std::ranges::any_of(lane->tasks, [](const Task& task) { return computes_with(task, Body::pool); });
          if (!groups) continue;
          EXPECT_EQ(lane->engine, Engine::serial);
          EXPECT_TRUE(computes_with(lane->tasks.back(), Body::pool));
          EXPECT_EQ(std::ranges::count(lane->tasks, TaskKind::copy, &Task::kind), std::ssize(lane->tasks) - 1)
              << "the rank's own tokens, then all groups";
        }
      }
    }
  }
}

TEST(StageExperts, ColumnsAreProductsOfTheirOwn) {
  const Config config{.schedule = "fused", .chunk_cols = 64};
  const Lowered made = lowered(layer({.count = 4, .top_k = 2, .ffn = 64}), config, find_target("h200x2"));
  EXPECT_EQ(lanes_in(made.plan, 0, kCallStage)[0]->tasks.size(), 1U + 256 / 64);
}

TEST(StageExperts, OneTaskSumsTheTokensOfARank) {
  for (const Dispatch dispatch : {Dispatch::all_gather, Dispatch::per_rank, Dispatch::per_expert}) {
    const Config config{.schedule = "fused", .dispatch = dispatch};
    const Lowered made = lowered(layer({.count = 8, .top_k = 2, .ffn = 64}), config, find_target("h200x2"));
    for (const Lane* lane : lanes_in(made.plan, 0, kStageAfterCall)) {
      if (lane->name != "combine") continue;
      EXPECT_EQ(lane->engine, Engine::serial);
      const auto sums = std::ranges::count_if(lane->tasks, [](const Task& t) { return computes_with(t, Body::pool); });
      EXPECT_EQ(sums, 2);
      EXPECT_EQ(std::ranges::count(lane->tasks, TaskKind::reduce, &Task::kind), 1);
      for (const Task& task : lane->tasks) {
        EXPECT_LE(task.waits.size(), 3U) << to_string(dispatch);
        EXPECT_LE(task.posts.size(), 2U) << to_string(dispatch);
      }
    }
  }
}

TEST(StageExperts, StepsAlone) {
  for (const char* op : {"moe_dispatch", "moe_dispatch_gemm", "moe_gemm_combine", "moe_combine"}) {
    for (const int64_t tokens : {0, 1, 300}) {
      Problem problem = layer({.count = 8, .top_k = 2, .ffn = 64});
      problem.op = op;
      problem.m = tokens;
      const Lowered made = lowered(problem, {.schedule = "fused"}, find_target("h200x2"));
      for (const Lane& lane : made.plan.lanes) EXPECT_EQ(has_groups(lane), lane.stage == kCallStage) << op;
    }
  }
}

TEST(StageExperts, ARankWithoutExpertsHasNoProducts) {
  const Experts experts{.count = 4, .top_k = 2, .ffn = 64, .placement = {{0, 1, 2, 3}, {}}};
  const Lowered made = lowered(layer(experts), {.schedule = "fused"}, find_target("h200x2"));
  EXPECT_TRUE(lanes_in(made.plan, 1, kCallStage).empty());
  EXPECT_EQ(lanes_in(made.plan, 1, kStageAfterCall).size(), 1U);
}

TEST(StageExperts, TokensForAPeerAreSelectedByOneTask) {
  const Config config{.schedule = "fused", .dispatch = Dispatch::per_rank};
  const Lowered made = lowered(layer({.count = 8, .top_k = 2, .ffn = 64}), config, find_target("h200x4"));
  int selects = 0;
  for (const Lane* lane : lanes_in(made.plan, 0, 0)) {
    const auto here = std::ranges::count_if(lane->tasks, [](const Task& t) { return computes_with(t, Body::select); });
    if (here > 0) {
      EXPECT_EQ(lane->engine, Engine::serial);
    }
    selects += static_cast<int>(here);
  }
  EXPECT_EQ(selects, 3);
}

TEST(StageExperts, HandshakesOfTokensOnceAnExpertAreOutsideOfTheProducts) {
  const Config config{.schedule = "fused", .dispatch = Dispatch::per_expert};
  const Lowered made = lowered(layer({.count = 8, .top_k = 2, .ffn = 64}), config, find_target("h200x2"));
  const auto products = lanes_in(made.plan, 0, kCallStage);
  ASSERT_EQ(products.size(), 1U);
  EXPECT_EQ(products[0]->tasks.size(), 4U) << "two of the tokens of each rank";
  for (const Task& task : products[0]->tasks) EXPECT_TRUE(task.waits.empty() && task.posts.empty());
  for (const auto& [stage, name] : {std::pair{0, "tiles_await"}, {kStageAfterCall, "tiles_made"}}) {
    const auto lanes = lanes_in(made.plan, 0, stage);
    EXPECT_TRUE(std::ranges::any_of(lanes, [&](const Lane* lane) { return lane->name == name; })) << name;
  }
}

TEST(StageExperts, AlsoWhereRanksShareAGpu) {
  Target shared = find_target("h200x2");
  shared.streams = false;
  shared.sms /= 2;
  const Lowered made = lowered(layer({.count = 4, .top_k = 2, .ffn = 64}), {}, shared);
  EXPECT_EQ(lanes_in(made.plan, 0, kCallStage).size(), 1U);
  // The CTAs that wait for peers leave room for those of the other rank.
  int workers = 0;
  for (const Lane* lane : lanes_in(made.plan, 0, 0)) workers += lane->workers;
  EXPECT_LE(workers, shared.sms);
}

int buffer_of(const Plan& plan, const std::string& name) {
  return static_cast<int>(std::ranges::find(plan.buffers, name, &Buffer::name) - plan.buffers.begin());
}

TEST(ReuseMemory, TheResultsOfExpertsHaveTheMemoryOfTheirTokens) {
  Problem square = layer({.count = 8, .top_k = 2, .ffn = 64});
  square.k = square.n;
  const Lowered made = lowered(square, {.schedule = "fused"}, find_target("h200x2"));
  const Plan& plan = made.plan;
  EXPECT_EQ(plan.buffers[buffer_of(plan, "expert_y")].reuses, buffer_of(plan, "expert_x"));
  Plan apart = plan;
  apart.buffers[buffer_of(plan, "expert_y")].reuses = -1;
  EXPECT_EQ(local_bytes(apart) - local_bytes(plan), workspace_bytes(plan.buffers[buffer_of(plan, "expert_x")]));
}

TEST(ReuseMemory, TheCheckerRefusesMemoryThatIsStillUsed) {
  Problem square = layer({.count = 8, .top_k = 2, .ffn = 64});
  square.k = square.n;
  Plan plan = lowered(square, {.schedule = "fused"}, find_target("h200x2")).plan;
  plan.buffers[buffer_of(plan, "expert_y")].reuses = -1;
  // The first product reads the tokens and writes this buffer.
  plan.buffers[buffer_of(plan, "expert_h")].reuses = buffer_of(plan, "expert_x");
  const CheckResult proof = check(plan);
  ASSERT_FALSE(proof.ok());
  EXPECT_EQ(proof.violations[0].rule, Rule::race) << proof.violations[0].text;
  plan.buffers[buffer_of(plan, "expert_h")].reuses = buffer_of(plan, "all_x");
  EXPECT_NE(check(plan).violations.at(0).text.find("want local workspace"), std::string::npos);
}

TEST(StageExperts, PlansWithoutGroupsStay) {
  const Problem gemm{.op = "gemm_all_reduce", .m = 300, .n = 256, .k = 128, .dtype = DType::bf16};
  EXPECT_EQ(note_of(lowered(gemm, {}, find_target("h200x2"))), "no groups of rows");
}

}  // namespace
}  // namespace tilewire
