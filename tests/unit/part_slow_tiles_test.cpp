// The pass part_slow_tiles: tiles that tensor cores do not take get lanes and kernels of their own; other tiles stay.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lower/passes.hpp"
#include "lower/tensor_cores.hpp"
#include "tilewire/spi/lower.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

Plan plan_of(DType dtype = DType::bf16, std::vector<Epilogue> epilogue = {}) {
  const Problem problem{
      .op = "gemm_reduce_scatter", .m = 1024, .n = 512, .k = 256, .dtype = dtype, .epilogue = std::move(epilogue)};
  return make_plan(problem, {.num_ranks = 2}, {.tile_n = 128});
}

/// Apply `change` to every n-th tile of each lane.
template <class Change>
Plan with_some(Plan plan, int every, const Change& change) {
  for (Lane& lane : plan.lanes) {
    int tile = 0;
    for (Task& task : lane.tasks) {
      if (task.kind == TaskKind::compute && tile++ % every == 0) change(task);
    }
  }
  return plan;
}

std::string part(Plan& plan, bool streams = true) {
  Target target = gpu_target("h200", plan.team.num_ranks, 132);
  target.streams = streams;
  return lowering::part_slow_tiles(plan, target);
}

int64_t count_of_tiles(const Plan& plan, bool own_kernel) {
  int64_t count = 0;
  for (const Lane& lane : plan.lanes) {
    if ((lane.kernel > 0) == own_kernel) count += std::ranges::count(lane.tasks, TaskKind::compute, &Task::kind);
  }
  return count;
}

TEST(PartSlowTiles, PlansOfOneKernelStayAsTheyAre) {
  Plan plan = plan_of();
  const Plan before = plan;
  EXPECT_EQ(part(plan), "tensor cores take all tiles");
  EXPECT_EQ(plan, before);
  plan = plan_of(DType::fp32);
  EXPECT_EQ(part(plan), "no tiles that tensor cores take");
  plan = plan_of(DType::bf16, {{EpilogueKind::bias}, {EpilogueKind::gelu}, {EpilogueKind::residual}});
  EXPECT_EQ(part(plan), "tensor cores take all tiles");
}

TEST(PartSlowTiles, TilesThatAreNotCompiledGetALaneOfTheirOwn) {
  Plan plan = with_some(plan_of(), 4, [](Task& task) { task.gemm.tile_m = 24; });
  EXPECT_TRUE(slow_tiles(plan).has_value());
  EXPECT_EQ(part(plan),
            "16 tiles, 25.0 % of the multiply-adds, run without tensor cores in lanes of their own: tiles "
            "of 24 x 128 are not compiled");
  EXPECT_EQ(slow_tiles(plan), std::nullopt);
  EXPECT_EQ(slow_share(plan), 0.25);
  EXPECT_EQ(count_of_tiles(plan, true), 16);
  EXPECT_EQ(count_of_tiles(plan, false), 48);
  std::set<std::string> names;
  for (const Lane& lane : plan.lanes) {
    if (lane.kernel == 0) continue;
    names.insert(lane.name);
    EXPECT_EQ(lane.kernel, 1);
  }
  EXPECT_EQ(names, std::set<std::string>{"tiles_slow"});
  EXPECT_TRUE(check(plan).ok());
}

/// The kernel with more multiply-adds stays the first one, in either order.
TEST(PartSlowTiles, OneKernelMakesMost) {
  const auto wide = [](Task& task) { task.gemm.tile_n = 192; };
  Plan plan = with_some(plan_of(), 4, wide);
  EXPECT_NE(part(plan).find("16 tiles, 25.0 %"), std::string::npos);
  EXPECT_EQ(first_product(plan)->gemm.tile_n, 128);
  plan = with_some(plan_of(), 1, wide);
  plan = with_some(std::move(plan), 4, [](Task& task) { task.gemm.tile_n = 128; });
  const std::string note = part(plan);
  EXPECT_NE(note.find("16 tiles, 25.0 %"), std::string::npos) << note;
  EXPECT_NE(note.find("bf16 nk tiles of 128 x 128 beside bf16 nk tiles of 128 x 192"), std::string::npos) << note;
  EXPECT_EQ(first_product(plan)->gemm.tile_n, 192);
}

TEST(PartSlowTiles, TilesWithManyDestinationsAreParted) {
  const Plan made = plan_of();
  Plan plan = with_some(made, 8, [&](Task& task) { task.writes.resize(17, task.writes[0]); });
  EXPECT_NE(part(plan).find("a tile with 17 destinations"), std::string::npos);
  EXPECT_EQ(count_of_tiles(plan, true), 8);
}

TEST(PartSlowTiles, BesideCallsOfTheLibraryTheOthersKeepTensorCores) {
  Plan plan = with_some(plan_of(), 4, [](Task& task) { task.gemm.tile_m = 24; });
  for (Task& task : plan.lanes[0].tasks) {
    if (task.kind != TaskKind::compute || task.gemm.tile_m == 24) continue;
    task.kind = TaskKind::gemm_call;
    break;
  }
  EXPECT_NE(part(plan).find("run without tensor cores in lanes of their own"), std::string::npos);
  EXPECT_EQ(slow_tiles(plan), std::nullopt);
}

TEST(PartSlowTiles, CallsOfTheLibraryAloneAreNoTiles) {
  Plan plan = plan_of();
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (task.kind == TaskKind::compute) task.kind = TaskKind::gemm_call;
    }
  }
  const Plan before = plan;
  EXPECT_EQ(part(plan), "no tiles that tensor cores take");
  EXPECT_TRUE(plan == before);
  EXPECT_EQ(slow_tiles(plan), "one call of the library");
}

TEST(PartSlowTiles, WhereRanksShareAGpuNothingIsParted) {
  Plan plan = with_some(plan_of(), 4, [](Task& task) { task.gemm.tile_m = 24; });
  const Plan before = plan;
  EXPECT_EQ(part(plan, false), "ranks share a GPU, where a call is one kernel");
  EXPECT_EQ(plan, before);
}

/// Later passes do not change these tiles: none of them completes a sum.
TEST(PartSlowTiles, NoSumIsFusedIntoAPartedTile) {
  const Plan plan = with_some(plan_of(), 4, [](Task& task) { task.gemm.tile_m = 24; });
  const Plan lowered = lower(plan, gpu_target("h200", 2, 132)).plan;
  EXPECT_TRUE(check(lowered).ok());
  int64_t fused = 0;
  for (const Lane& lane : lowered.lanes) {
    for (const Task& task : lane.tasks) {
      fused += task.addends.empty() ? 0 : 1;
      EXPECT_TRUE(task.addends.empty() || lane.kernel == 0);
    }
  }
  EXPECT_GT(fused, 0);
}

}  // namespace
}  // namespace tilewire
