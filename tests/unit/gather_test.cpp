// AllGather + GEMM: waits of tiles with few rows, one signal per chunk of columns; tiles of shards, copies of local
// rows.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "schedules/tile_order.hpp"
#include "tilewire/check.hpp"
#include "tilewire/make_plan.hpp"
#include "unit/gather_plans.hpp"

namespace tilewire {
namespace {

/// The waits of each tile of a rank.
std::vector<std::vector<Wait>> waits_of_tiles(const Plan& plan, int rank) {
  std::vector<std::vector<Wait>> waits;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank == rank && task.kind == TaskKind::compute) waits.push_back(task.waits);
    }
  }
  return waits;
}

/// Number of chunks of rows of other ranks' shards that arrive at a rank, per chunk of columns.
int64_t arriving(int64_t m, int64_t chunk_rows, int rank) {
  int64_t chunks = 0;
  for (int owner = 0; owner < kGatherRanks; ++owner) {
    const int64_t rows = shard_of(m, kGatherRanks, owner).size();
    if (owner != rank) chunks += (rows + chunk_rows - 1) / chunk_rows;
  }
  return chunks;
}

TEST(FewRows, ArriveInOneSignalOfEachCutOfColumns) {
  // 3 rows: rank 3 has none. 61: shards of 16, 16, 16, 13.
  for (const int64_t m : {3, 61, 64}) {
    for (const Direction direction : {Direction::push, Direction::pull}) {
      for (const bool gathered : {false, true}) {
        const Plan plan =
            gather_plan(m, {.tile_m = 64, .chunk_rows = 4, .chunk_cols = 32, .direction = direction}, gathered);
        EXPECT_TRUE(check(plan).ok());
        for (int rank = 0; rank < kGatherRanks; ++rank) {
          const bool own = shard_of(m, kGatherRanks, rank).size() > 0;
          for (const auto& waits : waits_of_tiles(plan, rank)) {
            ASSERT_EQ(waits.size(), own ? 4u : 2u) << m << " rows, rank " << rank;  // both halves, of others and mine
            for (size_t i = 0; i < waits.size(); ++i)
              EXPECT_EQ(waits[i].at_least, i < 2 ? arriving(m, 4, rank) : 1) << m << " rows, rank " << rank;
          }
        }
      }
    }
  }
}

TEST(FewRows, OfARingArriveOneByOne) {
  const Plan plan = gather_plan(64, {.tile_m = 64, .chunk_rows = 4, .algorithm = Algorithm::ring});
  EXPECT_TRUE(check(plan).ok());
  for (const auto& waits : waits_of_tiles(plan, 1)) {
    EXPECT_GE(std::ranges::count(waits, 1, &Wait::at_least), 4);
    EXPECT_GE(std::ranges::count(waits, 1, &Wait::at_least), std::ssize(waits) - 1) << "my own rows count together";
  }
}

/// The numbers of chunks that the tiles of rank 1 wait for, signal by signal.
std::set<std::vector<int64_t>> chunks_waited_for(int64_t m, const Config& config, bool gathered = false) {
  const Plan plan = gather_plan(m, config, gathered);
  EXPECT_TRUE(check(plan).ok());
  std::set<std::vector<int64_t>> all;
  for (const auto& waits : waits_of_tiles(plan, 1)) {
    std::vector<int64_t> chunks;
    for (const Wait& wait : waits) chunks.push_back(wait.at_least);
    all.insert(chunks);
  }
  return all;
}

TEST(Gather, ChunksThatTheSameTilesNeedCountTogether) {
  using Chunks = std::set<std::vector<int64_t>>;
  // Shards of 64 rows, two tiles each: local tiles wait for nothing.
  EXPECT_EQ(chunks_waited_for(256, {.tile_m = 32, .chunk_rows = 4}), (Chunks{{}, {8}}));
  EXPECT_EQ(chunks_waited_for(256, {.tile_m = 32, .chunk_rows = 64}), (Chunks{{}, {1}}));
  // Chunks of rows 0 to 48 and 48 to 64: the second tile needs both, and one of the five that the first tile needs,
  // too.
  EXPECT_EQ(chunks_waited_for(256, {.tile_m = 32, .chunk_rows = 48}), (Chunks{{}, {1}, {1, 1}}));
  EXPECT_EQ(chunks_waited_for(256, {.tile_m = 32, .chunk_rows = 10}), (Chunks{{}, {3, 1}, {1, 3}}));
  // Copies to the output wait for each chunk.
  EXPECT_EQ(chunks_waited_for(256, {.tile_m = 32, .chunk_rows = 16}, true), (Chunks{{}, {1, 1}}));
  // So they do beside one library call.
  const Config call{.schedule = "sequential", .chunk_rows = 16, .compute = Provider::library};
  int copies = 0;
  for (const Lane& lane : gather_plan(256, call, true).lanes) {
    for (const Task& task : lane.tasks) {
      const bool copies_what_came = task.kind == TaskKind::copy && task.waits.size() == 1 && task.posts.empty();
      if (copies_what_came) {
        EXPECT_EQ(task.waits[0].at_least, 1) << lane.name;
        ++copies;
      }
    }
  }
  EXPECT_EQ(copies, 4 * 3 * 4) << "of each rank, four chunks of three owners";
  // Shards of 16 rows, two owners per tile: four chunks of the other rank and two local ones, or four of two other
  // ranks.
  EXPECT_EQ(chunks_waited_for(64, {.tile_m = 32, .chunk_rows = 4}), (Chunks{{4, 4}, {8}}));
}

/// First rows of the tiles in a column of tiles.
std::vector<int64_t> first_rows(int64_t rows, int64_t tile_m, int num_ranks) {
  std::vector<int64_t> first;
  for (const Tile& tile : tile_grid(rows, 1, tile_m, 1, num_ranks)) first.push_back(tile.rows.begin);
  return first;
}

TEST(TileGrid, ShardsHaveTilesOfTheirOwnWhereThatTakesNoMore) {
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(first_rows(192, 128, 2), (Rows{0, 96}));
  EXPECT_EQ(first_rows(1000, 128, 4), (Rows{0, 128, 250, 378, 500, 628, 750, 878}));
  EXPECT_EQ(first_rows(300, 128, 2), (Rows{0, 128, 256})) << "shards of 150 rows would take four";
  EXPECT_EQ(first_rows(540, 128, 4), (Rows{0, 128, 256, 384, 512})) << "shards of 135 rows would take eight";
  EXPECT_EQ(first_rows(100, 128, 2), (Rows{0}));
  EXPECT_EQ(first_rows(5, 2, 4), (Rows{0, 2, 4})) << "shards of 2, 2, 1 and no rows";
  EXPECT_EQ(first_rows(512, 128, 4), (Rows{0, 128, 256, 384}));
  EXPECT_EQ(first_rows(0, 128, 4), Rows{});
}

/// Number of copies of a rank's local rows.
int64_t own_copies(const Plan& plan, int rank) {
  int64_t copies = 0;
  for (const Lane& lane : plan.lanes) {
    copies += std::ranges::count_if(lane.tasks, [&](const Task& task) {
      return lane.rank == rank && task.kind == TaskKind::copy && task.writes[0].to.rank == rank;
    });
  }
  return copies;
}

TEST(LocalRows, AreCopiedOnlyWhereATileHasOthersToo) {
  // Shards of 30 rows have tiles of their own.
  EXPECT_EQ(own_copies(gather_plan(120, {.tile_m = 32}), 1), 0);
  // In tiles of 16 rows they would be 8 instead of 5: rank 1 has 12 rows in a tile of rank 0, and 8 in a tile of rank
  // 2.
  EXPECT_EQ(own_copies(gather_plan(80, {.tile_m = 16}), 1), 2);
  EXPECT_EQ(own_copies(gather_plan(80, {.tile_m = 16, .chunk_rows = 4}), 1), 5) << "each worker takes a chunk";
  EXPECT_EQ(own_copies(gather_plan(80, {.tile_m = 16, .chunk_rows = 4, .transport = Transport::copy_engine}), 1), 2);
  const Plan plan = gather_plan(80, {.tile_m = 16, .chunk_rows = 4});
  EXPECT_TRUE(check(plan).ok());
  const auto waits_for_three = [](const auto& waits) { return std::ranges::count(waits, 3, &Wait::at_least) == 1; };
  EXPECT_TRUE(std::ranges::any_of(waits_of_tiles(plan, 1), waits_for_three)) << "12 rows, 4 at once";
}

/// The ranks for whose ready signals a task waits, in order.
std::vector<int> ready_of(const Plan& plan, const Task& task) {
  const auto ready = std::ranges::find(plan.signals, "ready", &SignalBlock::name);
  std::vector<int> peers;
  for (const Wait& wait : task.waits) {
    if (wait.purpose == Purpose::ready) peers.push_back(wait.signal.index - ready->first);
  }
  return peers;
}

/// The pushes of one lane to peers, in their order.
std::vector<Task> pushes_of(const Lane& lane) {
  std::vector<Task> pushes;
  std::ranges::copy_if(lane.tasks, std::back_inserter(pushes), [&](const Task& task) {
    return task.kind == TaskKind::copy && task.writes[0].to.rank != lane.rank;
  });
  return pushes;
}

TEST(Handshakes, TheFirstPushOfAnEnginesLaneWaitsForAllItsPeers) {
  constexpr int kFive = 5;
  for (const int lanes : {1, 2, 7}) {
    for (const int64_t cols : {0, 32}) {
      SCOPED_TRACE(::testing::Message() << lanes << " lanes, cuts of " << cols << " columns");
      Config config{.tile_m = 16, .chunk_rows = 4, .chunk_cols = cols, .transport = Transport::copy_engine};
      config.copy_lanes = lanes;
      // 65 rows: shards of 13. 8: the last rank has none, and pushes nothing.
      for (const int64_t m : {65, 8}) {
        const Plan plan = make_plan({.op = "all_gather_gemm", .m = m, .n = 40, .k = 64}, {.num_ranks = kFive}, config);
        EXPECT_TRUE(check(plan).ok());
        std::vector<int> seen(kFive, 0);  // lanes of each rank
        for (const Lane& lane : plan.lanes) {
          if (lane.name != "gather") continue;
          std::vector<int> want;
          for (int phase = ++seen[lane.rank]; phase < kFive; phase += lanes)
            want.push_back((lane.rank + phase) % kFive);
          for (const Task& push : pushes_of(lane)) EXPECT_EQ(ready_of(plan, push), std::exchange(want, {}));
          EXPECT_TRUE(want.empty() || shard_of(m, kFive, lane.rank).size() == 0);
        }
        EXPECT_GE(std::ranges::min(seen), 1);
        EXPECT_EQ(std::ranges::max(seen), std::min(lanes, kFive - 1)) << "lanes with nothing to do are none";
      }
    }
  }
}

TEST(Handshakes, EachPushByWorkersWaitsForItsPeer) {
  const Plan plan = gather_plan(64, {.tile_m = 16, .chunk_rows = 4});
  int pushes = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& push : pushes_of(lane)) {
      EXPECT_EQ(ready_of(plan, push), std::vector{push.writes[0].to.rank});
      ++pushes;
    }
  }
  EXPECT_EQ(pushes, kGatherRanks * (kGatherRanks - 1) * 4);
}

}  // namespace
}  // namespace tilewire
