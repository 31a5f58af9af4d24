// How the copies of a lane go through their stream, without a GPU: which look at no gate, which another stream tells.
#include "backends/cuda/stream_lanes.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "cuda/made_up_tables.hpp"
#include "tilewire/schedule.hpp"

namespace tilewire::cuda {
namespace {

/// Which of the rank's copies look at no gate, one after another.
std::vector<bool> followers(const Plan& plan, int rank) {
  std::vector<bool> all;
  for (const StreamWork& work : tables_of(plan, true, rank).works) {
    if (std::holds_alternative<StreamCopy>(work.what)) all.push_back(work.follows);
  }
  return all;
}

TEST(StreamLanes, CopiesThatWaitForNothingNewFollowInTheirStream) {
  // NOTE: the library multiplies, as tables of tiles need a driver.
  Config config{.chunk_rows = 512, .transport = Transport::copy_engine, .compute = Provider::library};
  const Problem gather{.op = "all_gather_gemm", .m = 4096, .n = 2048, .k = 2048};
  // Two chunks for each of three peers: the first one has waited for all of these; in lockstep, for one after another.
  const Plan unpaced = make_plan(gather, {.num_ranks = 4}, config);
  EXPECT_EQ(followers(unpaced, 0), (std::vector{false, true, true, true, true, true}));
  config.pacing = Pacing::lockstep;
  EXPECT_EQ(followers(make_plan(gather, {.num_ranks = 4}, config), 1),
            (std::vector{false, true, false, true, false, true}));
  // Every chunk of a reduce-scatter has yet to be made.
  const Problem scatter{.op = "gemm_reduce_scatter", .m = 4096, .n = 2048, .k = 2048};
  EXPECT_EQ(followers(make_plan(scatter, {.num_ranks = 4}, config), 0), std::vector(6, false));
  // A higher threshold, and a handshake in between, are waited for.
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

TEST(StreamLanes, ManyCopiesAreToldByAnotherStream) {
  const Problem gather{.op = "all_gather_gemm", .m = 4096, .n = 2048, .k = 2048};
  Config config{.transport = Transport::copy_engine, .compute = Provider::library};
  for (const int64_t chunk : {1024, 512}) {  // three copies, and six
    config.chunk_rows = chunk;
    const RankTables tables = tables_of(make_plan(gather, {.num_ranks = 4}, config), true, 1);
    std::vector<bool> apart;
    for (const StreamWork& work : tables.works) {
      if (!std::holds_alternative<StreamCopy>(work.what)) continue;
      EXPECT_EQ(tables.streams[work.stream].has_teller, chunk == 512);
      apart.push_back(work.told_apart);
    }
    std::vector<bool> want(3 * 1024 / chunk, chunk == 512);
    want.back() = false;  // nothing comes after it
    EXPECT_EQ(apart, want);
  }
}

}  // namespace
}  // namespace tilewire::cuda
