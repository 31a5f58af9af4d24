// The cost of a check: a plan of 8 ranks and 50,000 tasks takes under 2 s, and twice the tasks twice the time.
// Built as the target `unit_check`. Sanitized builds print the times only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "check_plans.hpp"
#include "cpu_time.hpp"
#include "tilewire/make_plan.hpp"

namespace tilewire {
namespace {

using namespace check_plans;

constexpr int kRanks = 8;
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileCols = 32;
constexpr int kDown = 22;  // tiles in a shard, downwards

/// GEMM + reduce-scatter by tiles, with `across` columns of tiles: every tile goes to its owner's workspace, and one
/// task per tile waits for the tiles of all ranks and sums them.
Plan tiled_scatter(int across) {
  const int64_t shard_rows = kDown * kTileRows;
  const Problem problem{
      .op = "gemm_reduce_scatter", .m = kRanks * shard_rows, .n = across * kTileCols, .k = 64 * kRanks};
  Plan plan{.team = {.num_ranks = kRanks}};
  set_note(plan, {problem, {}});
  plan.buffers = {{.name = "a", .dtype = DType::bf16, .rows = problem.m, .cols = 64, .scope = Scope::input},
                  {.name = "b", .dtype = DType::bf16, .rows = problem.n, .cols = 64, .scope = Scope::input},
                  {.name = "c", .dtype = DType::bf16, .rows = shard_rows, .cols = problem.n, .scope = Scope::output},
                  {.name = "staged", .rows = problem.m, .cols = problem.n, .scope = Scope::symmetric}};
  const int tiles = kDown * across;
  plan.signals = {{"ready", 0, kRanks}, {"arrived", kRanks, tiles}};
  for (int rank = 0; rank < kRanks; ++rank) {
    Lane gemm{.rank = rank, .engine = Engine::tiles, .name = "tiles"};
    Lane sum{.rank = rank, .engine = Engine::reduce, .name = "reduce"};
    gemm.tasks.push_back({.kind = TaskKind::sync});
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer != rank) gemm.tasks[0].posts.push_back({{peer, rank}});
    }
    for (int step = 1; step <= kRanks; ++step) {
      const int owner = (rank + step) % kRanks;
      for (int tile = 0; tile < tiles; ++tile) {
        const int64_t row = tile / across * kTileRows;
        const int64_t col = tile % across * kTileCols;
        gemm.tasks.push_back(
            {.kind = TaskKind::compute,
             .reads = {part(rank, 0, owner * shard_rows + row, kTileRows, 0, 64), part(rank, 1, col, kTileCols, 0, 64)},
             .writes = {{part(owner, 3, rank * shard_rows + row, kTileRows, col, kTileCols)}},
             .posts = {{{owner, kRanks + tile}}}});
        if (owner != rank) gemm.tasks.back().waits = {{{rank, owner}, 1, Purpose::ready}};
        if (step != kRanks) continue;
        Task reduce{.kind = TaskKind::reduce,
                    .writes = {{part(rank, 2, row, kTileRows, col, kTileCols)}},
                    .waits = {{{rank, kRanks + tile}, kRanks}}};
        for (int from = 0; from < kRanks; ++from)
          reduce.reads.push_back(part(rank, 3, from * shard_rows + row, kTileRows, col, kTileCols));
        sum.tasks.push_back(reduce);
      }
    }
    plan.lanes.push_back(gemm);
    plan.lanes.push_back(sum);
  }
  return plan;
}

struct Timed {
  CheckResult result;
  double seconds;
};

Timed timed(const Plan& plan, const char* what) {
  Timed run{};
  run.seconds = cpu_seconds([&] { run.result = check(plan); });
  std::cout << fmt::format("{}: {} tasks, {:.0f} ms\n", what, num_tasks(plan), 1e3 * run.seconds);
  return run;
}

TEST(CheckCost, FiftyThousandTasks) {
  const Plan plan = tiled_scatter(32);
  ASSERT_GE(num_tasks(plan), 50000);
  const Timed run = timed(plan, "sound");
  EXPECT_TRUE(run.result.ok()) << words(run.result);
  if (kTimesCount) {
    EXPECT_LT(run.seconds, 2);
  }
}

TEST(CheckCost, GrowsWithTheTasks) {
  std::vector<double> seconds;
  for (const int across : {16, 32, 64}) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) best = std::min(best, timed(tiled_scatter(across), "growth").seconds);
    seconds.push_back(best);
  }
  if (kTimesCount) {
    EXPECT_LT(seconds[2], 10 * seconds[0]) << "4 times the tasks; in proportion to their square it would be 16";
  }
}

TEST(CheckCost, RefusalsAreNotSlower) {
  Plan plan = tiled_scatter(32);
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks)
      std::erase_if(task.waits, [](const Wait& wait) { return wait.purpose == Purpose::ready; });
  }
  const Timed no_handshake = timed(plan, "no handshake");
  expect_refused(no_handshake.result, Rule::race, {"across calls"});
  plan = tiled_scatter(32);
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks)
      std::erase_if(task.waits, [](const Wait& wait) { return wait.purpose == Purpose::data; });
  }
  const Timed no_data = timed(plan, "no data waits");
  expect_refused(no_data.result, Rule::race, {"the two are unordered"});
  if (kTimesCount) {
    EXPECT_LT(std::max(no_handshake.seconds, no_data.seconds), 2);
  }
}

TEST(CheckCost, OrderThroughManyStepsIsFoundInBatches) {
  // One task of a rank waits for every tile, then releases all sums one after another: no path is short.
  Plan plan = tiled_scatter(32);
  const int signals = num_signals(plan);
  const int tiles = kDown * 32;
  plan.signals.push_back({"all", signals, 1});
  for (int rank = 0; rank < kRanks; ++rank) {
    Lane gates{.rank = rank, .engine = Engine::copy, .name = "gates"};
    for (int tile = 0; tile < tiles; ++tile)
      gates.tasks.push_back({.kind = TaskKind::sync, .waits = {{{rank, kRanks + tile}, kRanks}}});
    gates.tasks.push_back({.kind = TaskKind::sync, .posts = {{{rank, signals}}}});
    for (Task& task : plan.lanes[2 * rank + 1].tasks) task.waits = {{{rank, signals}, 1}};
    plan.lanes.push_back(gates);
  }
  const Timed run = timed(plan, "long paths");
  EXPECT_TRUE(run.result.ok()) << words(run.result);
  if (kTimesCount) {
    EXPECT_LT(run.seconds, 4);
  }
}

}  // namespace
}  // namespace tilewire
