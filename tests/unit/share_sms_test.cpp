// Clusters of tiles, kernels of lanes, and CTAs of lanes, as the passes set them.
// Built as part of the target `unit_core`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"
#include "tilewire/error.hpp"

namespace tilewire {
namespace {

constexpr Region kA{.buffer = 0, .rows = 128, .cols = 512};
constexpr Region kB{.buffer = 1, .rows = 128, .cols = 512};

/// One rank: a lane of `tiles` tiles, each with other rows of A, and lanes of copies.
Plan plan_of(int tiles, const std::vector<Lane>& others, const GemmParams& gemm = {.tile_n = 128}) {
  Plan plan{.op = "made_up", .team = {.num_ranks = 1}};
  plan.buffers = {{.name = "a", .dtype = DType::bf16, .rows = 128L * 512, .cols = 512, .scope = Scope::input},
                  {.name = "b", .dtype = DType::bf16, .rows = 128L * 512, .cols = 512, .scope = Scope::input},
                  {.name = "c", .dtype = DType::bf16, .rows = 128L * 512, .cols = 512, .scope = Scope::output}};
  Lane lane{.name = "tiles"};
  for (int i = 0; i < tiles; ++i) {
    Region a = kA;
    Region c{.buffer = 2, .rows = 128, .cols = 128};
    a.row = c.row = 128L * i;
    lane.tasks.push_back({.kind = TaskKind::compute, .gemm = gemm, .reads = {a, kB}, .writes = {{c}}});
  }
  if (tiles > 0) plan.lanes.push_back(lane);
  plan.lanes.insert(plan.lanes.end(), others.begin(), others.end());
  return plan;
}

/// A pool of `count` copies of so many rows.
Lane copies(int count, int workers = 0, int64_t rows = 128) {
  Region from = kA;
  from.rows = rows;
  Lane lane{.engine = Engine::reduce, .name = "copies", .workers = workers};
  for (int i = 0; i < count; ++i)
    lane.tasks.push_back(
        {.kind = TaskKind::copy, .reads = {from}, .writes = {{{.buffer = 2, .rows = rows, .cols = 512}}}});
  return lane;
}

Lane handshake() { return {.engine = Engine::serial, .name = "greets", .tasks = {{.posts = {{}}}}}; }

Plan shared(Plan plan, int sms = 132, bool streams = true) {
  Target target = gpu_target("h200", 1, sms);
  target.streams = streams;
  static_cast<void>(lowering::form_clusters(plan, target));
  static_cast<void>(lowering::split_kernels(plan, target));
  static_cast<void>(lowering::share_sms(plan, target));
  return plan;
}

/// A lane with more tasks than CTAs gives up CTAs if tiles then take one wave instead of two; helpers take its rest.
TEST(ShareSms, HelpedLanesSaveAWave) {
  const Plan plan = shared(plan_of(128, {copies(64), handshake()}));
  EXPECT_EQ(plan.lanes[0].workers, 128);
  EXPECT_EQ(plan.lanes[1].workers, 3);
  EXPECT_TRUE(plan.lanes[1].helped);
  EXPECT_FALSE(plan.lanes[2].helped);
  EXPECT_EQ(plan.lanes[2].workers, 0) << "a handshake has no CTA of its own";
  // Not if the plan sets the number of CTAs, and not without gain.
  const Plan sized = shared(plan_of(128, {copies(64, 16), handshake()}));
  EXPECT_EQ(sized.lanes[0].workers, 64);
  EXPECT_EQ(sized.lanes[1].workers, 16);
  EXPECT_FALSE(sized.lanes[1].helped);
  EXPECT_EQ(shared(plan_of(250, {copies(64)})).lanes[1].workers, 7);
  EXPECT_EQ(shared(plan_of(300, {copies(64)})).lanes[1].workers, 16);
  // Helpers could take the SMs that another rank's kernel waits for.
  const Plan beside = shared(plan_of(128, {copies(64)}), 132, false);
  EXPECT_FALSE(beside.lanes[1].helped);
  EXPECT_EQ(beside.lanes[1].workers, 16);
}

/// Lanes that wait for each other all run at the same time, beside at least one tile; many ranks may share a GPU.
TEST(ShareSms, LanesThatDoNotFitAreRefused) {
  const Plan plan = plan_of(128, {copies(4, 2), copies(4, 1), copies(4, 1)});
  EXPECT_THAT([&] { static_cast<void>(shared(plan, 4)); },
              ::testing::Throws<Error>(::testing::AllOf(
                  ::testing::Property(&Error::kind, ErrorKind::invalid_input),
                  ::testing::Property(&Error::what, ::testing::HasSubstr("2 SMs are too few for 3 lanes")))));
  const Plan narrow = shared(plan, 6);
  EXPECT_EQ(narrow.lanes[0].workers, 3);
  EXPECT_EQ(narrow.lanes[1].workers, 1);
}

TEST(ShareSms, SmallTasksGoToWarpgroups) {
  EXPECT_TRUE(shared(plan_of(0, {copies(64, 0, 8)})).lanes[0].warpgroups);
  EXPECT_FALSE(shared(plan_of(0, {copies(16, 0, 8)})).lanes[0].warpgroups) << "a CTA each";
  EXPECT_FALSE(shared(plan_of(0, {copies(64, 0, 9)})).lanes[0].warpgroups) << "more than 4,096 elements";
}

TEST(ShareSms, WholeClustersGetSms) {
  const GemmParams parts{.tile_n = 128, .cluster_split_k = 4};
  Target target = gpu_target("h200", 1, 132);
  target.cluster_sms = {0, 132, 132, 126, 120};
  const auto workers = [&](Plan plan) {
    static_cast<void>(lowering::share_sms(plan, target));
    return plan.lanes[0].workers;
  };
  EXPECT_EQ(workers(plan_of(30, {}, parts)), 30) << "of four CTAs each";
  EXPECT_EQ(workers(plan_of(30, {copies(20, 20)}, parts)), 15) << "25 have room: two waves";
  EXPECT_EQ(workers(plan_of(31, {}, parts)), 16) << "GPCs have room for 30";
  Plan asked = plan_of(30, {}, parts);
  asked.lanes[0].workers = 3;
  EXPECT_EQ(workers(asked), 3);
}

/// Clusters need neighbouring SMs, and helpers would start on SMs that are left to the caller's kernels.
TEST(FormClusters, BesideOthersKernelsThereAreNone) {
  Target target = gpu_target("h200", 1, 100);
  target.streams = true;
  target.whole_gpu = false;
  for (const GemmParams& tile : {GemmParams{.tile_n = 128, .cluster_m = 2}, GemmParams{.cluster_split_k = 4}}) {
    Plan plan = plan_of(128, {copies(100)}, tile);
    EXPECT_TRUE(lowering::form_clusters(plan, target).starts_with("tiles load without clusters: "));
    static_cast<void>(lowering::split_kernels(plan, target));
    static_cast<void>(lowering::share_sms(plan, target));
    int workers = 0;
    for (const Lane& lane : plan.lanes) {
      EXPECT_FALSE(lane.helped);
      workers += lane.workers;
      for (const Task& task : lane.tasks) EXPECT_FALSE(in_cluster(task) || task.gemm.cluster_split_k > 1);
    }
    EXPECT_LE(workers, 100);
  }
}

TEST(FormClusters, TilesThatAgreeFollowEachOther) {
  const GemmParams pair{.tile_n = 128, .cluster_m = 2};
  const auto in_pairs = [](const Plan& plan) {
    std::string pairs;
    for (const Task& task : plan.lanes[0].tasks) pairs += in_cluster(task) ? 'p' : '-';
    return pairs;
  };
  EXPECT_EQ(in_pairs(shared(plan_of(4, {}, pair))), "pppp");
  EXPECT_EQ(in_pairs(shared(plan_of(5, {}, pair))), "pppp-");
  EXPECT_EQ(shared(plan_of(5, {}, pair)).lanes[0].workers, 6) << "one CTA beside the last tile";
  Plan other = plan_of(5, {}, pair);
  other.lanes[0].tasks[2].reads[1].row = 128;
  EXPECT_EQ(in_pairs(shared(other)), "pp-pp");
  other.lanes[0].tasks[1].reads[1].row = other.lanes[0].tasks[4].reads[1].row = 256;
  EXPECT_EQ(in_pairs(shared(other)), "-----");
  EXPECT_EQ(shared(other).lanes[0].workers, 5);
  const auto note = [&](Plan plan, int sms = 132) { return lowering::form_clusters(plan, gpu_target("h200", 1, sms)); };
  EXPECT_EQ(note(plan_of(5, {}, pair)), "4 tiles in pairs");
  EXPECT_EQ(note(plan_of(1, {}, pair)), "tiles load without clusters: one tile");
  EXPECT_EQ(note(plan_of(4, {}, pair), 2), "tiles load without clusters: 2 SMs for 1 lanes");
  EXPECT_EQ(note(plan_of(4, {}, {.tile_m = 64, .cluster_n = 2})), "tiles load without clusters: tiles of 64 rows");
  EXPECT_EQ(note(plan_of(4, {}, {.cluster_split_k = 4})), "CTAs share the K of 4 tiles");
  EXPECT_EQ(note(plan_of(4, {}, {.cluster_split_k = 4}), 7),
            "tiles load without clusters: no room for clusters of 4 on 7 SMs");
  EXPECT_EQ(note(plan_of(4, {})), "no tiles in clusters");
}

/// Lanes that move data beside a library call have a kernel of their own, and the call knows its SMs.
TEST(SplitKernels, BesideTheLibrary) {
  Plan plan = plan_of(0, {copies(64), handshake()});
  Lane call{.engine = Engine::library, .name = "call"};
  call.tasks.push_back(
      {.kind = TaskKind::gemm_call, .reads = {kA, kB}, .writes = {{{.buffer = 2, .rows = 128, .cols = 128}}}});
  plan.lanes.push_back(call);
  const Plan split = shared(plan);
  EXPECT_EQ(split.lanes[0].kernel, 1);
  EXPECT_EQ(split.lanes[1].kernel, 0) << "moves nothing";
  EXPECT_EQ(split.lanes[2].kernel, 0);
  EXPECT_EQ(split.lanes[2].workers, 132 - 16 - 1) << "without the copies', and that of the handshakes";
  EXPECT_EQ(shared(plan, 132, false).lanes[0].kernel, 0) << "ranks that share a GPU have one kernel";
  EXPECT_EQ(shared(plan_of(4, {copies(64)})).lanes[1].kernel, 0) << "beside tiles of the same kernel";
  Plan kernels = plan_of(4, {copies(64), copies(64)});
  kernels.lanes[2].kernel = 1;
  EXPECT_EQ(shared(kernels).lanes[1].kernel, 2);
  EXPECT_EQ(shared(kernels).lanes[0].kernel, 0) << "the tiles";
}

}  // namespace
}  // namespace tilewire
