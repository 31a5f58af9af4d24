// How a stream makes the copies of a lane, without a GPU: which copies wait for no doorbell, and which completions the
// notify
// stream writes.
#include "backends/cuda/tables/stream_lanes.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "cuda/made_up_tables.hpp"
#include "tilewire/make_plan.hpp"

namespace tilewire::cuda {
namespace {

/// For each copy of the rank: whether it starts without a wait for its doorbell.
std::vector<bool> followers(const Plan& plan, int rank) {
  std::vector<bool> all;
  for (const StreamWork& work : tables_of(plan, true, rank).works) {
    if (std::holds_alternative<StreamCopy>(work.what)) all.push_back(work.follows);
  }
  return all;
}

TEST(StreamLanes, CopiesThatWaitForNothingNewFollowInTheirStream) {
  // NOTE: GEMMs are library calls here, since tables of tiles need a driver.
  Config config{.chunk_rows = 512, .transport = Transport::copy_engine, .compute = Provider::library};
  const Problem gather{.op = "all_gather_gemm", .m = 4096, .n = 2048, .k = 2048};
  // Two chunks for each of three peers: the first copy has waited for all of them; in lockstep, for one after another.
  const Plan unpaced = make_plan(gather, {.num_ranks = 4}, config);
  EXPECT_EQ(followers(unpaced, 0), (std::vector{false, true, true, true, true, true}));
  config.pacing = Pacing::lockstep;
  EXPECT_EQ(followers(make_plan(gather, {.num_ranks = 4}, config), 1),
            (std::vector{false, true, false, true, false, true}));
  // Every chunk of a reduce-scatter is still to be made.
  const Problem scatter{.op = "gemm_reduce_scatter", .m = 4096, .n = 2048, .k = 2048};
  EXPECT_EQ(followers(make_plan(scatter, {.num_ranks = 4}, config), 0), std::vector(6, false));
  // A higher threshold, and a handshake in between, need waits.
  Plan raised = unpaced;
  for (Lane& lane : raised.lanes) {
    if (lane.rank != 0 || lane.engine != Engine::copy) continue;
    lane.tasks[1].waits = lane.tasks[0].waits;
    ++lane.tasks[1].waits[0].at_least;
  }
  EXPECT_EQ(followers(raised, 0), (std::vector{false, false, true, true, true, true}));
  Plan between = unpaced;
  for (Lane& lane : between.lanes) {
    if (lane.rank != 0 || lane.engine != Engine::copy) continue;
    lane.tasks.insert(lane.tasks.begin() + 1, Task{.kind = TaskKind::sync, .waits = lane.tasks[0].waits});
  }
  EXPECT_EQ(followers(between, 0), (std::vector{false, false, true, true, true, true}));
}

/// For each copy of the rank: whether the notify stream signals it; requires that streams have a notifier if so.
std::vector<bool> told(const Plan& plan, int rank, bool traced = false) {
  const RankTables tables = tables_of(plan, true, rank, traced);
  std::vector<bool> all;
  std::vector<bool> has_notifier(tables.streams.size(), false);
  for (const StreamWork& work : tables.works) {
    has_notifier[work.stream] = has_notifier[work.stream] || work.notified_aside;
    if (std::holds_alternative<StreamCopy>(work.what)) all.push_back(work.notified_aside);
  }
  for (size_t i = 0; i < has_notifier.size(); ++i) EXPECT_EQ(tables.streams[i].has_notifier, has_notifier[i]);
  return all;
}

TEST(StreamLanes, WhereManyCopiesFollowANotifierSaysWhatIsDone) {
  const Problem gather{.op = "all_gather_gemm", .m = 8192, .n = 2048, .k = 4096};
  Config config{.chunk_rows = 2048, .transport = Transport::copy_engine, .compute = Provider::library};
  const auto plan = [&](int ranks) { return make_plan(gather, {.num_ranks = ranks}, config); };
  EXPECT_EQ(told(plan(4), 0), std::vector(3, false)) << "whole shards are few";
  config.chunk_rows = 1024;
  std::vector<bool> all_but_last(6, true);
  all_but_last.back() = false;
  EXPECT_EQ(told(plan(4), 0), all_but_last);
  EXPECT_EQ(told(plan(4), 0, true), all_but_last) << "also where times are taken";
  // A copy that waits for a peer's post waits for a doorbell: then the completion should be written quickly.
  config.pacing = Pacing::lockstep;
  EXPECT_EQ(told(plan(8), 1), std::vector(7, false));
  config.chunk_rows = 256;
  std::vector<bool> within_shards(7 * 4, true);
  for (size_t i = 3; i < within_shards.size(); i += 4) within_shards[i] = false;
  EXPECT_EQ(told(plan(8), 1), within_shards);
  config.chunk_rows = 255;
  EXPECT_EQ(told(plan(8), 1), std::vector(7 * 5, false)) << "less than 2 MiB on average: the words had better be quick";
  config.pacing = Pacing::unpaced;
  config.chunk_rows = 256;
  config.copy_lanes = 2;
  const RankTables lanes = tables_of(plan(4), true, 1);
  EXPECT_EQ(std::ranges::count(lanes.streams, true, &StreamUse::has_notifier), 2) << "one for each lane";
  const Problem scatter{.op = "gemm_reduce_scatter", .m = 8192, .n = 2048, .k = 2048};
  EXPECT_EQ(told(make_plan(scatter, {.num_ranks = 4}, config), 0), std::vector(3 * 8, false)) << "yet to be made";
}

TEST(StreamLanes, CopiesWithoutSignalsHaveNoNotifier) {
  Plan plan = make_plan({.op = "all_gather_gemm", .m = 8192, .n = 2048, .k = 4096}, {.num_ranks = 4},
                        {.chunk_rows = 256, .transport = Transport::copy_engine, .compute = Provider::library});
  for (Lane& lane : plan.lanes) {
    if (lane.engine != Engine::copy) continue;
    for (Task& task : lane.tasks) task.waits.clear(), task.posts.clear();
  }
  EXPECT_EQ(told(plan, 0), std::vector(3 * 8, false));
}

}  // namespace
}  // namespace tilewire::cuda
