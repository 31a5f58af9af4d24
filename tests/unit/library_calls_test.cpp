// Plans whose products are calls of the vendor's library: the calls, their destinations, and refusals.
// Built as the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "schedules/parts.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

/// The library calls of one rank.
std::vector<Task> calls_of(const Plan& plan, int rank) {
  std::vector<Task> calls;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != rank || lane.engine != Engine::library) continue;
    std::ranges::copy_if(lane.tasks, std::back_inserter(calls),
                         [](const Task& task) { return task.kind == TaskKind::gemm_call; });
  }
  return calls;
}

TEST(Library, IsCalledForEachChunkInOrderOfArrival) {
  const Problem problem{.op = "all_gather_gemm", .m = 400, .n = 64, .k = 64};
  const Config config{.chunk_rows = 50, .transport = Transport::copy_engine, .compute = Provider::library};
  std::vector<int64_t> rows;
  for (const Task& call : calls_of(make_plan(problem, {.num_ranks = 4}, config), 1)) {
    rows.push_back(call.writes[0].to.row);
    EXPECT_EQ(call.writes[0].to.rows, rows.size() == 1 ? 100 : 50);
    EXPECT_EQ(call.waits.size(), rows.size() == 1 ? 0U : 1U);
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{100, 0, 50, 300, 350, 200, 250}));
}

TEST(Library, IsCalledForEachOwnersRowsOfAReduceScatter) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 400, .n = 64, .k = 64};
  const Config config{.tile_m = 32, .tile_n = 32, .transport = Transport::copy_engine, .compute = Provider::library};
  std::vector<int64_t> rows;
  for (const Task& call : calls_of(make_plan(problem, {.num_ranks = 4}, config), 1)) {
    rows.push_back(call.writes[0].to.row);
    EXPECT_EQ(call.writes[0].to.rows, 100);
    ASSERT_EQ(call.posts.size(), 1U) << "one post for all pieces";
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{200, 300, 0, 100}));
}

TEST(Library, StoresEachOwnersColumnsOfAnAllReduce) {
  const Problem problem{.op = "gemm_all_reduce", .m = 40, .n = 62, .k = 64};
  const Plan plan = make_plan(problem, {.num_ranks = 4}, {.tile_m = 16, .tile_n = 8, .compute = Provider::library});
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<Task> calls = calls_of(plan, rank);
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_TRUE(calls[0].waits.empty()) << "peers' results of the last call say that they have read";
    ASSERT_EQ(calls[0].writes.size(), 4U);
    ASSERT_EQ(calls[0].posts.size(), 4U) << "one post for all pieces of an owner";
    for (int owner = 0; owner < 4; ++owner) {
      const Write& write = calls[0].writes[owner];
      EXPECT_EQ(write.to.rank, owner);
      EXPECT_EQ(write.to.row, 40 * rank) << "a slot for each maker";
      EXPECT_EQ(write.to.rows, 40);
      EXPECT_EQ(write.to.col, 0);
      EXPECT_EQ(write.to.cols, shard_of(62, 4, owner).size());
      EXPECT_EQ(write.first_col, shard_of(62, 4, owner).begin);
    }
    // The GEMM alone stores its parts on its own rank, one below the other.
    const Task alone = calls_of(gemm_only(plan), rank).at(0);
    for (int part = 0; part < 4; ++part) {
      EXPECT_EQ(alone.writes[part].to.rank, rank);
      EXPECT_EQ(alone.writes[part].to.row, 40 * part);
    }
  }
}

TEST(Library, TheCheckerSeesColumnsInTheWrongPlace) {
  const Problem problem{.op = "gemm_all_reduce", .m = 16, .n = 32, .k = 64};
  const auto refuses = [&](const auto& change) {
    Plan plan = make_plan(problem, {.num_ranks = 4}, {.tile_m = 16, .tile_n = 8, .compute = Provider::library});
    for (Lane& lane : plan.lanes) {
      if (lane.engine == Engine::library && lane.rank == 2) change(lane.tasks[0].writes);
    }
    return !check(plan).violations.empty();
  };
  using Writes = std::vector<Write>;
  EXPECT_FALSE(refuses([](Writes&) {}));
  EXPECT_TRUE(refuses([](Writes& writes) { std::swap(writes[0].first_col, writes[3].first_col); }));
  EXPECT_TRUE(refuses([](Writes& writes) { writes[1].first_col += 1; }));
  EXPECT_TRUE(refuses([](Writes& writes) { writes.pop_back(); }));
}

TEST(Library, StoresColumnsOnHostsOfFewColumnsAndWithoutDepth) {
  for (const auto& [n, k] : {std::pair(3, 9), std::pair(5, 2), std::pair(1, 64)}) {
    const Problem problem{.op = "gemm_all_reduce", .m = 7, .n = n, .k = k};
    EXPECT_TRUE(check(make_plan(problem, {.num_ranks = 4}, {.compute = Provider::library})).violations.empty());
  }
}

TEST(Library, RefusesWhatItCannotHonourByName) {
  const auto reason = [](const char* op, const char* knob, const char* value) {
    Config config{.transport = Transport::copy_engine, .compute = Provider::library};
    set_knob(config, knob, value);
    const Problem problem{.op = op, .m = 64, .n = 64, .k = 64};
    return find_schedule("fused").refuses(problem, {.num_ranks = 2}, config).value_or("");
  };
  EXPECT_EQ(reason("all_gather_gemm", "tile_m", "128"), "");
  EXPECT_NE(reason("all_gather_gemm", "tile_m", "64").find("tile_m"), std::string::npos);
  EXPECT_NE(reason("all_gather_gemm", "split_k", "2").find("split_k"), std::string::npos);
  EXPECT_NE(reason("gemm_reduce_scatter", "group_m", "2").find("group_m"), std::string::npos);
  EXPECT_NE(reason("gemm_reduce_scatter", "transport", "store").find("compute = library"), std::string::npos);
  EXPECT_NE(reason("gemm_all_reduce", "tile_m", "128").find("needs transport = store"), std::string::npos);
  EXPECT_EQ(reason("gemm_all_reduce", "transport", "store"), "");
  EXPECT_NE(reason("gemm_all_reduce", "algorithm", "one_shot").find("direct or two_phase"), std::string::npos);
  EXPECT_NE(reason("gemm_all_reduce", "reduce_mode", "pull").find("reduce_mode = staged"), std::string::npos);
  EXPECT_NE(reason("gemm_all_reduce", "tile_order", "naive").find("one call of the library"), std::string::npos);
  EXPECT_NE(reason("gemm_all_reduce", "rounds", "2").find("one call of the library"), std::string::npos);
  EXPECT_NE(reason("all_reduce", "tile_m", "128").find("no GEMM"), std::string::npos);
}

}  // namespace
}  // namespace tilewire
