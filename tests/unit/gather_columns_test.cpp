// AllGather + GEMM: columns of A that arrive one after another, and tiles in step with them.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "tilewire/check.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/schedule.hpp"
#include "unit/gather_plans.hpp"

namespace tilewire {
namespace {

/// Require that each tile of a rank waits for as many signals as there are chunks of columns, a local tile for the
/// first one only. Returns the tiles' rows, in order.
std::vector<int64_t> rows_in_step(const Plan& plan, int rank, size_t cuts) {
  const Range mine = shard_of(note_of(plan).problem.m, kGatherRanks, rank);
  std::vector<int64_t> rows;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank != rank || task.kind != TaskKind::compute) continue;
      const int64_t row = task.writes[0].to.row;
      const bool own = row >= mine.begin && row < mine.end;
      EXPECT_EQ(task.waits.size(), own ? size_t{kGatherRanks - 1} : cuts) << "row " << row;
      for (const Wait& wait : task.waits) EXPECT_EQ(wait.signal.rank, rank);
      rows.push_back(row);
    }
  }
  return rows;
}

TEST(InStep, MyTilesBeginWithTheFirstColumnsOfAllOthers) {
  for (const Direction direction : {Direction::push, Direction::pull}) {
    const Config config{.tile_m = 64,
                        .tile_n = 128,
                        .group_m = 8,
                        .chunk_cols = 16,
                        .direction = direction,
                        .tile_order = TileOrder::in_step};
    const Plan plan = gather_plan(256, config);
    EXPECT_TRUE(check(plan).ok());
    for (int rank = 0; rank < kGatherRanks; ++rank) {
      std::vector<int64_t> rows = rows_in_step(plan, rank, 4);
      rows.resize(4);
      EXPECT_EQ(rows, (std::vector<int64_t>{0, 64, 128, 192})) << "column by column, whoever has the rows";
    }
  }
  // All columns at once: all tiles wait for all.
  const Plan whole = gather_plan(256, {.tile_m = 64, .group_m = 8, .tile_order = TileOrder::in_step});
  EXPECT_TRUE(check(whole).ok());
  EXPECT_EQ(rows_in_step(whole, 2, 1), (std::vector<int64_t>{0, 64, 128, 192}));
}

TEST(InStep, FewWorkersPushAChunkToAllPeersAtOnce) {
  // Shards of 64 rows in chunks of 16: four per chunk of columns.
  Config config{
      .tile_m = 128, .tile_n = 128, .group_m = 8, .chunk_rows = 16, .chunk_cols = 16, .tile_order = TileOrder::in_step};
  const auto pushes = [&](int workers) {
    config.copy_workers = workers;
    const Plan plan = gather_plan(256, config);
    EXPECT_TRUE(check(plan).ok());
    std::vector<Task> all;
    for (const Lane& lane : plan.lanes) {
      if (lane.rank != 1 || lane.name != "gather") continue;
      std::ranges::copy_if(lane.tasks, std::back_inserter(all), [](const Task& t) { return t.kind == TaskKind::copy; });
    }
    return all;
  };
  EXPECT_EQ(pushes(5).size(), size_t{4 * 4 + 3 * 4 * 4}) << "own rows, which others' tiles share, and pushes";
  const std::vector<Task> few = pushes(4);
  ASSERT_EQ(few.size(), size_t{4 * 4});
  for (size_t i = 0; i < few.size(); ++i) {
    std::vector<int> ranks;
    for (const Write& write : few[i].writes) ranks.push_back(write.to.rank);
    EXPECT_EQ(ranks, (std::vector{2, 3, 0, 1})) << i << ": and to where others' tiles look for it";
    EXPECT_EQ(few[i].posts.size(), 4u);
    EXPECT_EQ(few[i].waits.size(), 3u);
    EXPECT_EQ(few[i].reads[0].col, static_cast<int64_t>(i / 4) * 16);
  }
}

TEST(InStep, OnlyRowsThatOthersTilesShareStayHereToo) {
  // Shards of 300 rows, tiles of 128 over all shards: the second rank's rows begin and end within tiles of other ranks.
  const Config config{.tile_m = 128,
                      .tile_n = 128,
                      .group_m = 8,
                      .copy_workers = 2,
                      .chunk_rows = 43,
                      .chunk_cols = 16,
                      .tile_order = TileOrder::in_step};
  const Plan plan = gather_plan(1200, config);
  EXPECT_TRUE(check(plan).ok());
  std::vector<std::pair<int64_t, int64_t>> kept;  // of each chunk: first row, rows
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != 1 || lane.name != "gather") continue;
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::copy || task.reads[0].col > 0) continue;
      int64_t posts = 0;
      for (const Write& write : task.writes) {
        if (write.to.rank != 1) continue;
        kept.emplace_back(write.first_row, write.to.rows);
        EXPECT_EQ(write.to.row, 300 + task.reads[0].row + write.first_row);
      }
      for (const Post& post : task.posts) posts += post.signal.rank == 1 ? 1 : 0;
      EXPECT_EQ(posts, std::ranges::count(task.writes, 1, [](const Write& write) { return write.to.rank; }));
    }
  }
  EXPECT_EQ(kept, (std::vector<std::pair<int64_t, int64_t>>{{0, 43}, {0, 41}, {40, 3}, {0, 43}, {0, 42}}));
}

/// The destinations of a rank's pushes, and the first column of each.
std::vector<std::pair<std::vector<int>, int64_t>> pushes_by_columns(const Plan& plan, int rank) {
  std::vector<std::pair<std::vector<int>, int64_t>> pushes;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank != rank || task.kind != TaskKind::copy) continue;
      std::vector<int> peers;
      for (const Write& write : task.writes) peers.push_back(write.to.rank);
      pushes.emplace_back(peers, task.reads[0].col);
    }
  }
  return pushes;
}

TEST(Columns, ComeToOwnersWhoseTilesAreMadeTogetherBeforeTheNextOnes) {
  using Pushes = std::vector<std::pair<std::vector<int>, int64_t>>;
  Config config{.tile_m = 64, .tile_n = 128, .group_m = 8, .chunk_cols = 32};
  const auto pushes = [&] {
    const Plan plan = gather_plan(256, config);
    EXPECT_TRUE(check(plan).ok());
    return pushes_by_columns(plan, 1);
  };
  EXPECT_EQ(pushes(), (Pushes{{{2}, 0}, {{2}, 32}, {{3}, 0}, {{3}, 32}, {{0}, 0}, {{0}, 32}}));
  // Rows in tiles with other ranks' rows are copied beside the push to the first peer: shards of 72 rows, tiles of 128.
  config.tile_m = 128;
  const Plan shared = gather_plan(288, config);
  EXPECT_TRUE(check(shared).ok());
  EXPECT_EQ(
      pushes_by_columns(shared, 1),
      (Pushes{
          {{1}, 0}, {{1}, 0}, {{2}, 0}, {{1}, 32}, {{1}, 32}, {{2}, 32}, {{3}, 0}, {{3}, 32}, {{0}, 0}, {{0}, 32}}));
  config.tile_m = 64;
  const Pushes two{{{2}, 0}, {{2}, 32}, {{3}, 0}, {{0}, 0}, {{3}, 32}, {{0}, 32}};
  config.group_owners = 2;
  EXPECT_EQ(pushes(), two);
  config.tile_order = TileOrder::in_step;
  EXPECT_EQ(pushes(), two);
  config.copy_workers = 1;
  EXPECT_EQ(pushes(), (Pushes{{{2}, 0}, {{2}, 32}, {{3, 0}, 0}, {{3, 0}, 32}})) << "once for all that need it then";
  config.copy_workers = 0;
  config.group_owners = 1;
  const Pushes all{{{2}, 0}, {{3}, 0}, {{0}, 0}, {{2}, 32}, {{3}, 32}, {{0}, 32}};
  EXPECT_EQ(pushes(), all);
  config.group_owners = 4;
  EXPECT_EQ(pushes(), all);
  config.tile_order = TileOrder::rank_shifted;
  EXPECT_EQ(pushes(), all);
}

TEST(InStep, OfTwoOwnersAtATime) {
  for (const Direction direction : {Direction::push, Direction::pull}) {
    Config config{.tile_m = 64, .tile_n = 128, .group_m = 8, .chunk_cols = 16, .direction = direction};
    config.tile_order = TileOrder::in_step;
    config.group_owners = 2;
    const Plan plan = gather_plan(256, config);
    EXPECT_TRUE(check(plan).ok());
    std::vector<int64_t> rows;
    for (const Lane& lane : plan.lanes) {
      for (const Task& task : lane.tasks) {
        if (lane.rank != 1 || task.kind != TaskKind::compute) continue;
        const int64_t row = task.writes[0].to.row;
        EXPECT_EQ(task.waits.size(), row == 64 ? 1u : 4u) << "own rows begin with those of one peer, row " << row;
        rows.push_back(row);
      }
    }
    const bool push = direction == Direction::push;
    EXPECT_EQ(rows, push ? (std::vector<int64_t>{64, 0, 192, 128}) : (std::vector<int64_t>{64, 128, 192, 0}));
  }
}

TEST(InStep, LockstepIsKept) {
  Config config{.tile_m = 128, .tile_n = 128, .group_m = 8, .chunk_rows = 16, .tile_order = TileOrder::in_step};
  config.copy_workers = 2;
  config.pacing = Pacing::lockstep;
  const Plan plan = gather_plan(256, config);
  EXPECT_TRUE(check(plan).ok());
  int64_t paced = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) paced += std::ranges::count(task.waits, Purpose::pace, &Wait::purpose);
  }
  EXPECT_EQ(paced, kGatherRanks * 2 * 4) << "pushes to the second and the third peer";
}

TEST(InStep, IsOfTilesOfAGather) {
  Problem problem{.op = "all_gather_gemm", .m = 256, .n = 256, .k = 64};
  Config config{.schedule = "fused", .tile_order = TileOrder::in_step};
  const auto why = [&] {
    return find_schedule(config.schedule).refuses(problem, {.num_ranks = 2}, config).value_or("");
  };
  EXPECT_EQ(why(), "tile_order = in_step: needs group_m > 1, which groups row tiles");
  config.group_m = 2;
  EXPECT_EQ(why(), "");
  config.rounds = 2;
  EXPECT_EQ(why(), "rounds: tiles in step have no rounds");
  config.rounds = 1;
  config.group_owners = 2;
  EXPECT_EQ(why(), "");
  config.tile_order = TileOrder::naive;
  EXPECT_EQ(why(), "group_owners, rounds: only tiles that are not in tile_order = naive are grouped by owners");
  config.group_owners = 1;
  config.tile_order = TileOrder::in_step;
  config.group_m = 1;
  config.compute = Provider::library;
  EXPECT_EQ(why(), "tile_order = in_step, naive, group_owners, rounds: calls of the library have no tiles");
  config.compute = Provider::tiles;
  problem.op = "gemm_reduce_scatter";
  EXPECT_EQ(why(), "tile_order = in_step: only tiles of a gather wait for columns of A");
  config.schedule = "track_trigger";
  problem.reduction = Reduction::any;
  EXPECT_EQ(why(), "knob tile_order = in_step: for gemm_reduce_scatter want one of: rank_shifted, naive");
  config.schedule = "two_stream";
  problem.op = "gemm_all_reduce";
  EXPECT_EQ(why(), "knob tile_order = in_step has no meaning for gemm_all_reduce (tilewire info --knobs)");
}

}  // namespace
}  // namespace tilewire
