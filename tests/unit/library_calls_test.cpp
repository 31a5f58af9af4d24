// Plans whose products are calls of the vendor's library: which calls, what they store where, what is refused.
// Built as the target `unit_core`.
#include <gtest/gtest.h>

#include "schedules/parts.hpp"
#include "tilewire/json.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

TEST(Library, IsCalledForEachChunkInOrderOfArrival) {
  const Problem problem{.op = "all_gather_gemm", .m = 400, .n = 64, .k = 64};
  const Config config{.chunk_rows = 50, .transport = Transport::copy_engine, .compute = Provider::library};
  const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
  std::vector<int64_t> rows;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != 1 || lane.engine != Engine::library) continue;
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::gemm_call) continue;
      rows.push_back(task.writes[0].to.row);
      EXPECT_EQ(task.writes[0].to.rows, rows.size() == 1 ? 100 : 50);
      EXPECT_EQ(task.waits.size(), rows.size() == 1 ? 0U : 1U);
    }
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{100, 0, 50, 300, 350, 200, 250}));
}

TEST(Library, IsCalledForEachOwnersRowsOfAReduceScatter) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 400, .n = 64, .k = 64};
  const Config config{.tile_m = 32, .tile_n = 32, .transport = Transport::copy_engine, .compute = Provider::library};
  const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
  std::vector<int64_t> rows;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != 1 || lane.engine != Engine::library) continue;
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::gemm_call) continue;
      rows.push_back(task.writes[0].to.row);
      EXPECT_EQ(task.writes[0].to.rows, 100);
      ASSERT_EQ(task.posts.size(), 1U) << "one post for all pieces";
    }
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{200, 300, 0, 100}));
}

TEST(Library, StoresEachOwnersColumnsOfAnAllReduce) {
  const Problem problem{.op = "gemm_all_reduce", .m = 40, .n = 62, .k = 64};
  const Plan plan = make_plan(problem, {.num_ranks = 4}, {.tile_m = 16, .tile_n = 8, .compute = Provider::library});
  int calls = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::gemm_call) continue;
      ++calls;
      EXPECT_TRUE(task.waits.empty()) << "peers' results of the last call say that they have read";
      ASSERT_EQ(task.writes.size(), 4U);
      ASSERT_EQ(task.posts.size(), 4U) << "one post for all pieces of an owner";
      for (int owner = 0; owner < 4; ++owner) {
        const Write& write = task.writes[owner];
        EXPECT_EQ(write.to.rank, owner);
        EXPECT_EQ(write.to.row, 40 * lane.rank) << "a slot for each maker";
        EXPECT_EQ(write.to.rows, 40);
        EXPECT_EQ(write.to.col, 0);
        EXPECT_EQ(write.to.cols, shard_of(62, 4, owner).size());
        EXPECT_EQ(write.first_col, shard_of(62, 4, owner).begin);
      }
    }
  }
  EXPECT_EQ(calls, 4);
  // The GEMM alone stores its parts on its own rank, one below the other.
  for (const Lane& lane : gemm_only(plan).lanes) {
    for (int part = 0; part < 4; ++part) {
      EXPECT_EQ(lane.tasks[0].writes[part].to.rank, lane.rank);
      EXPECT_EQ(lane.tasks[0].writes[part].to.row, 40 * part);
    }
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
  EXPECT_NE(reason("gemm_all_reduce", "order", "naive").find("one call of the library"), std::string::npos);
  EXPECT_NE(reason("gemm_all_reduce", "rounds", "2").find("one call of the library"), std::string::npos);
  EXPECT_NE(reason("all_reduce", "tile_m", "128").find("no GEMM"), std::string::npos);
}

}  // namespace
}  // namespace tilewire
