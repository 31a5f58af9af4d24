// What flags in the data leave of signals, and which plans cannot have them.
// Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "backends/cuda/ll_protocol.hpp"
#include "tilewire/schedule.hpp"

namespace tilewire::cuda {
namespace {

Plan flagged(const char* op, Config config = {}) {
  config.tile_m = 64;
  config.tile_n = 128;
  config.transport = Transport::ll;
  return make_plan({.op = op, .m = 64, .n = 1024, .k = 512, .dtype = DType::bf16}, {.num_ranks = 4}, config);
}

/// Waits of all tasks whose signals are posted, by whether flags stand for them.
std::pair<int64_t, int64_t> waits_of(const Plan& plan, Purpose purpose) {
  const std::vector<bool> elided = elided_signals(plan);
  std::pair<int64_t, int64_t> counts;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      for (const Wait& wait : task.waits) {
        if (wait.purpose != purpose) continue;
        const bool stands = elided[signal_id(plan, wait.signal)];
        ++(stands ? counts.first : counts.second);
      }
    }
  }
  return counts;
}

TEST(Flagged, DataStandsForEverySignalButReadiness) {
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::one_shot}) {
      if (op == std::string("gemm_reduce_scatter") && algorithm != Algorithm::direct) continue;
      const Plan plan = flagged(op, {.algorithm = algorithm});
      const auto [by_data, by_signal] = waits_of(plan, Purpose::data);
      EXPECT_GT(by_data, 0) << op;
      EXPECT_EQ(by_signal, 0) << op;
      EXPECT_EQ(waits_of(plan, Purpose::ready).first, 0) << op;
      EXPECT_EQ(refuses_ll(plan), std::nullopt) << op;
    }
  }
}

TEST(Flagged, PartsOfKAreSummedBySignals) {
  const Plan plan = flagged("gemm_all_reduce", {.split_k = 2});
  const auto [by_data, by_signal] = waits_of(plan, Purpose::data);
  EXPECT_GT(by_data, 0);
  EXPECT_GT(by_signal, 0);
  EXPECT_EQ(refuses_ll(plan), std::nullopt);
}

TEST(Flagged, OtherTransportsHaveNone) {
  Plan plan = flagged("gemm_all_reduce");
  for (Buffer& buffer : plan.buffers) buffer.ll = false;
  EXPECT_EQ(waits_of(plan, Purpose::data).first, 0);
  EXPECT_EQ(refuses_ll(plan), std::nullopt);
}

TEST(Flagged, OnlyStagedPartsThatAreSummedAsTheyCome) {
  const auto refused = [](const char* op, Config config) {
    config.transport = Transport::ll;
    return find_schedule(config.schedule)
        .refuses({.op = op, .m = 64, .n = 64, .k = 64, .reduction = Reduction::any}, {.num_ranks = 2}, config)
        .has_value();
  };
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    EXPECT_FALSE(refused(op, {}));
    EXPECT_TRUE(refused(op, {.reduce_mode = ReduceMode::pull}));
    EXPECT_TRUE(refused(op, {.reduce_mode = ReduceMode::accumulate}));
    EXPECT_TRUE(refused(op, {.reduce_when = ReduceWhen::after}));
    EXPECT_TRUE(refused(op, {.algorithm = Algorithm::ring}));
    EXPECT_TRUE(refused(op, {.schedule = "sequential"}));
  }
  EXPECT_FALSE(refused("gemm_all_reduce", {.algorithm = Algorithm::one_shot}));
  EXPECT_TRUE(refused("gemm_all_reduce", {.schedule = "two_stream"}));
  EXPECT_TRUE(refused("all_gather_gemm", {}));
}

/// Why a plan is refused after `damage` to the first task of rank 1 that `wanted` picks.
std::string refusal(const std::function<bool(const Lane&, const Task&)>& wanted,
                    const std::function<void(Plan&, Lane&, Task&)>& damage) {
  Plan plan = flagged("gemm_all_reduce");
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (lane.rank != 1 || !wanted(lane, task)) continue;
      damage(plan, lane, task);
      return refuses_ll(plan).value_or("");
    }
  }
  return "no such task";
}

bool sums(const Lane&, const Task& task) { return task.kind == TaskKind::reduce; }
bool lands(const Lane& lane, const Task&) { return lane.name == "land"; }
bool makes(const Lane&, const Task& task) { return task.kind == TaskKind::compute; }

TEST(Flagged, PlansThatCannotHaveThemAreRefusedInWords) {
  EXPECT_EQ(refusal(lands, [](Plan&, Lane& lane, Task&) { lane.engine = Engine::copy; }),
            "a copy of lane land of rank 1 cannot look at what it reads");
  EXPECT_EQ(refusal(sums,
                    [](Plan& plan, Lane&, Task& task) {
                      task.reads[0].buffer = static_cast<int>(plan.buffers.size() - 1);
                      plan.buffers.back().scope = Scope::local;
                      plan.buffers.back().ll = false;
                    }),
            "a reduce of lane reduce of rank 1 cannot look at what it reads");
  EXPECT_EQ(refusal(makes, [](Plan&, Lane&, Task& task) { task.writes[0].mode = WriteMode::accumulate; }),
            "staged is added to");
  EXPECT_EQ(refusal(makes, [](Plan&, Lane&, Task& task) { task.waits.clear(); }),
            "rank 1 writes staged of rank 2, whose readiness it does not wait for");
  EXPECT_EQ(refusal(sums,
                    [](Plan&, Lane&, Task& task) {
                      std::erase_if(task.waits, [](const Wait& wait) { return wait.purpose == Purpose::ready; });
                    }),
            "rank 1 writes result of rank 2, whose readiness it does not wait for");
  EXPECT_EQ(refusal(sums, [](Plan&, Lane&, Task& task) { task.reads[1] = task.reads[0]; }),
            "staged of rank 1 is read twice, from row 0 column 0 on");
  EXPECT_EQ(refusal(sums, [](Plan&, Lane&, Task& task) { task.reads.pop_back(); }),
            "staged of rank 1: 8192 more elements are written than read");
}

}  // namespace
}  // namespace tilewire::cuda
