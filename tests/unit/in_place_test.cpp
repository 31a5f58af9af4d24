// Which outputs may lie in the memory of a residual.
// Built as part of the target `unit`.
#include "core/in_place.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/variants.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire {
namespace {

Plan plan_of(const char* op, const Config& config, bool lowered = false) {
  Problem problem{
      .op = op, .m = 64, .n = 64, .k = 64, .epilogue = {{EpilogueKind::residual}}, .reduction = Reduction::any};
  Plan plan = make_plan(problem, {.num_ranks = 2}, config);
  return lowered ? lower(std::move(plan), gpu_target("h200", 2, 132)).plan : plan;
}

std::string pair_of(const Plan& plan) {
  const std::vector<InPlace> pairs = in_place_pairs(plan);
  if (pairs.empty()) return "none";
  return plan.buffers[pairs[0].residual].name + " " + plan.buffers[pairs[0].output].name;
}

TEST(InPlace, TheTaskThatFinishesAnElementReadsItsResidual) {
  for (const bool lowered : {false, true}) {
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_phase, Algorithm::direct}) {
      const Config config{.tile_m = 16, .tile_n = 16, .algorithm = algorithm};
      EXPECT_EQ(pair_of(plan_of("gemm_all_reduce", config, lowered)), "residual c") << static_cast<int>(algorithm);
    }
    EXPECT_EQ(pair_of(plan_of("gemm_reduce_scatter", {.tile_m = 16, .tile_n = 16}, lowered)), "residual c");
    EXPECT_EQ(pair_of(plan_of("all_gather_gemm", {.tile_m = 16, .tile_n = 16}, lowered)), "residual c");
  }
}

TEST(InPlace, EveryVariantAllowsIt) {
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    const Problem problem{
        .op = op, .m = 64, .n = 64, .k = 64, .epilogue = {{EpilogueKind::residual}}, .reduction = Reduction::any};
    const Team team{.num_ranks = 3};
    for (const Config& config : all_variants(problem, team, {.tile_m = 16, .tile_n = 16, .chunk_rows = 16}))
      EXPECT_FALSE(in_place_pairs(make_plan(problem, team, config)).empty()) << op << " " << to_string(config);
  }
  EXPECT_EQ(pair_of(plan_of("gemm_all_to_all", {})), "none") << "the residual has another shape";
}

TEST(InPlace, SumsInTheOutputForbidIt) {
  Plan plan = plan_of("gemm_all_reduce", {.tile_m = 16, .tile_n = 16, .algorithm = Algorithm::one_shot});
  ASSERT_EQ(pair_of(plan), "residual c");
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      for (Write& write : task.writes) write.mode = WriteMode::accumulate;
    }
  }
  EXPECT_EQ(pair_of(plan), "none");
}

TEST(InPlace, AnotherTasksReadForbidsIt) {
  Plan plan = plan_of("gemm_all_reduce", {.tile_m = 16, .tile_n = 16, .algorithm = Algorithm::one_shot});
  ASSERT_EQ(pair_of(plan), "residual c");
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      for (EpilogueStep& step : task.epilogue) {
        if (step.operand && step.operand->rank == 0 && step.operand->row == 0) step.operand->row = 1;
      }
    }
  }
  EXPECT_EQ(pair_of(plan), "none") << "it reads the row below";
}

TEST(InPlace, OutputsOfAnotherTypeAreApart) {
  Problem problem{.op = "all_reduce", .m = 8, .n = 8, .epilogue = {{EpilogueKind::residual}}, .norm = Norm{}};
  const Plan plan = make_plan(problem, {.num_ranks = 2}, Config{.algorithm = Algorithm::one_shot});
  EXPECT_EQ(std::ssize(in_place_pairs(plan)), 1) << "y, not normed";
  EXPECT_EQ(pair_of(plan), "residual y");
  problem.epilogue.clear();
  EXPECT_TRUE(in_place_pairs(make_plan(problem, {.num_ranks = 2}, Config{})).empty());
}

}  // namespace
}  // namespace tilewire
