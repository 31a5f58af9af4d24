// Lowering: targets, the order of passes, each pass's note, and that every lowered plan is proven.
// Built as part of the target `unit_core`.
#include "tilewire/spi/lower.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "operator_names.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

const Problem kGather{.op = "all_gather_gemm", .m = 4096, .n = 2048, .k = 2048, .dtype = DType::bf16};
const Problem kScatter{.op = "gemm_reduce_scatter", .m = 1024, .n = 1024, .k = 1024, .dtype = DType::bf16};

Plan plan_for(const Problem& problem, const Target& target, const Config& config) {
  return make_plan(problem, team_of(target, target.ranks), config);
}

/// The Error of a call.
template <class Call>
std::string text(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string note_of_pass(const Lowered& lowered, const std::string& pass) {
  const auto found = std::ranges::find(lowered.notes, pass, &PassNote::pass);
  return found == lowered.notes.end() ? "did not run" : found->text;
}

TEST(Lower, TheHostHasNoPasses) {
  const Plan plan = make_plan(kGather, {.num_ranks = 2}, {});
  const Lowered lowered = lower(plan, host_target());
  EXPECT_TRUE(lowered.notes.empty());
  Plan named = plan;
  named.target = "host";
  EXPECT_EQ(lowered.plan, named);
}

TEST(Lower, SaysWhatItCannotDo) {
  const Target& target = find_target("h200x4");
  const Plan plan = plan_for(kGather, target, {});
  const Plan two = make_plan(kGather, {.num_ranks = 2}, {});
  EXPECT_NE(text([] {
              static_cast<void>(find_target("b200x4"));
            }).find("unknown target 'b200x4'; known: host, h100x1, h100x2"),
            std::string::npos);
  EXPECT_EQ(text([&] { static_cast<void>(lower(two, target)); }), "target h200x4 has 4 ranks, the plan is for 2");
  EXPECT_EQ(text([&] { static_cast<void>(lower(lower(plan, target).plan, target)); }),
            "the plan is lowered for h200x4 already");
  EXPECT_EQ(text([&] { static_cast<void>(lower(plan, target, "unroll")); }),
            "target h200x4 has no pass 'unroll'; it has: assign_engines, stage_experts, reuse_memory, part_slow_tiles, "
            "unpair_tiles, hint_caches, defer_waits, fuse_sums, form_clusters, take_local_rows, choose_stores, "
            "stage_gemm_call, elide_signals, "
            "double_buffer, join_sums, sum_whole_rows, split_kernels, share_sms");
  EXPECT_EQ(text([&] { require_target(lower(plan, target).plan, find_target("h100x4")); }),
            "the plan is lowered for h200x4, and this is h100x4");
}

TEST(Lower, StopsAfterAPassAndKeepsJson) {
  const Target& target = find_target("h200x4");
  const Plan plan = plan_for(kGather, target, {.chunk_cols = 512, .transport = Transport::copy_engine});
  const Lowered some = lower(plan, target, "assign_engines");
  EXPECT_EQ(some.notes.size(), 1U);
  const Lowered all = lower(plan, target);
  EXPECT_EQ(all.notes.size(), passes_of(target).size());
  EXPECT_EQ(all.plan.target, "h200x4");
  EXPECT_EQ(from_json_text<Plan>(to_string(all.plan)), all.plan);
  EXPECT_NE(hash_of(all.plan), hash_of(plan));
}

TEST(AssignEngines, LargeCopiesAreForEnginesSmallOnesForSms) {
  const Target& target = find_target("h200x4");
  const auto engines = [&](int64_t rows, const Target& of) {
    const Plan plan = plan_for(kGather, target, {.chunk_rows = rows, .transport = Transport::copy_engine});
    const Lowered lowered = lower(plan, of, "assign_engines");
    const auto count = [&](Engine engine) { return std::ranges::count(lowered.plan.lanes, engine, &Lane::engine); };
    return std::tuple(count(Engine::copy), count(Engine::serial), note_of_pass(lowered, "assign_engines"));
  };
  // The copies of a rank's gather, and none of its local rows.
  const auto [large, none, why] = engines(256, target);
  EXPECT_EQ(large, 4);
  EXPECT_EQ(none, 0);
  EXPECT_EQ(why, "4 copy lanes by copy engines, 0 by SMs");
  const auto [few, small, because] = engines(64, target);
  EXPECT_EQ(few, 0);
  EXPECT_EQ(small, 4);
  EXPECT_NE(because.find("copies have 256 KiB on average, copy engines take 512 KiB or more"), std::string::npos)
      << because;
  Target shared = target;
  shared.streams = false;
  EXPECT_EQ(std::get<0>(engines(256, shared)), 0);
  EXPECT_NE(std::get<2>(engines(256, shared)).find("ranks share a GPU"), std::string::npos);
}

TEST(AssignEngines, ACallWithoutDepthIsMadeBySms) {
  const Target& target = find_target("h200x2");
  Problem problem = kScatter;
  problem.k = 1;  // rank 1 has no part of K
  const Plan plan = plan_for(problem, target, {.schedule = "sequential", .compute = Provider::library});
  const Plan lowered = lower(plan, target, "assign_engines").plan;
  for (const Lane& lane : lowered.lanes) {
    if (std::ranges::count(lane.tasks, TaskKind::gemm_call, &Task::kind) == 0) continue;
    EXPECT_EQ(lane.engine, lane.rank == 0 ? Engine::library : Engine::serial);
  }
}

TEST(UnpairTiles, OnlyWhereNoPairWaitsForEver) {
  const Target& target = find_target("h200x4");
  const auto in_pairs = [](const Plan& plan) {
    return std::ranges::any_of(plan.lanes, [](const Lane& lane) {
      return std::ranges::any_of(lane.tasks, [](const Task& task) { return task.gemm.cluster_m > 1; });
    });
  };
  const Lowered good = lower(plan_for(kScatter, target, {.cluster_m = 2}), target, "unpair_tiles");
  EXPECT_TRUE(in_pairs(good.plan));
  EXPECT_EQ(note_of_pass(good, "unpair_tiles"), "tiles load in clusters on all ranks");
  // Each rank adds to the values that the rank before has stored, tile by tile at about the same place.
  Problem any = kScatter;
  any.reduction = Reduction::any;
  const Config turns{.cluster_m = 2, .reduce_mode = ReduceMode::accumulate, .tile_order = TileOrder::naive};
  const Lowered bad = lower(plan_for(any, target, turns), target, "unpair_tiles");
  EXPECT_FALSE(in_pairs(bad.plan));
  EXPECT_NE(note_of_pass(bad, "unpair_tiles").find("load without clusters: task "), std::string::npos)
      << note_of_pass(bad, "unpair_tiles");
}

TEST(HintCaches, FollowRowsAndWeightsUnlessTheScheduleHasChosen) {
  const Target& target = find_target("h200x2");
  const auto note = [&](int64_t m, const Config& config) {
    Problem problem = kGather;
    problem.m = m;
    return note_of_pass(lower(plan_for(problem, target, config), target), "hint_caches");
  };
  EXPECT_EQ(note(64, {.tile_m = 64, .tile_n = 128}), "A none, B evict_first on rank 0");
  EXPECT_EQ(note(8192, {}), "A none, B none on rank 0");
  EXPECT_EQ(note(64, {.tile_m = 64, .tile_n = 128, .group_m = 2, .tile_order = TileOrder::in_step}),
            "the schedule has chosen");
}

/// The choices for GPUs, lowered for other machines: proven after every pass, with the same results on the host.
TEST(Lower, EveryChoiceIsProvenAfterEveryPass) {
  int plans = 0;
  for (const char* name : {"h200x2", "h100x4"}) {
    const Target& target = find_target(name);
    for (const char* op : testing::operator_names()) {
      for (const int64_t m : {64, 500, 2048}) {
        const Problem problem{.op = op, .m = m, .n = 1024, .k = 512, .dtype = DType::bf16};
        const Team team = team_of(target, target.ranks);
        for (const Schedule& schedule : schedules()) {
          for (const Config& config : schedule.candidates(problem, team)) {
            if (schedule.refuses(problem, team, config)) continue;
            Plan plan = make_plan(problem, team, config);
            for (const Pass& pass : passes_of(target)) {
              const Plan before = plan;
              EXPECT_FALSE(pass.run(plan, target).empty()) << pass.name;
              if (plan == before) continue;
              const CheckResult result = check(plan);
              EXPECT_TRUE(result.ok()) << pass.name << ", " << op << " " << to_string(config) << ": "
                                       << result.violations[0].text;
            }
            ++plans;
          }
        }
      }
    }
  }
  EXPECT_GT(plans, 150);
}

}  // namespace
}  // namespace tilewire
