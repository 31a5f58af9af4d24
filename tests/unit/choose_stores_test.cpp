// The pass choose_stores: the store of each tile.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <map>

#include "lower/passes.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire {
namespace {

Plan tiles_of_plan(const char* op, int64_t m, int64_t n, Config config) {
  config.tile_n = 128;
  const Problem problem{.op = op, .m = m, .n = n, .k = 256, .dtype = DType::bf16};
  return make_plan(problem, {.num_ranks = 2}, config);
}

std::string choose_stores_of(Plan& plan) { return lowering::choose_stores(plan, gpu_target("h200", 2, 132)); }

/// Of all tiles: number of writes by each kind of store, to the tile's own rank and to the other.
using Ways = std::map<std::pair<Via, bool>, int>;

Ways ways_of(Plan plan) {
  EXPECT_NE(choose_stores_of(plan).find("by tensor copies"), std::string::npos);
  Ways ways;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::compute) continue;
      for (const Write& write : task.writes) ++ways[{write.via, write.to.rank == lane.rank}];
    }
  }
  return ways;
}

constexpr bool kHere = true;
constexpr bool kThere = false;

TEST(ChooseStores, TensorCopiesStayOnTheGpuUnlessTheyAreAskedFor) {
  EXPECT_EQ(ways_of(tiles_of_plan("gemm_reduce_scatter", 512, 256, {})),
            (Ways{{{Via::tma, kHere}, 8}, {{Via::threads, kThere}, 8}}));
  EXPECT_EQ(ways_of(tiles_of_plan("gemm_reduce_scatter", 512, 256, {.transport = Transport::tma})),
            (Ways{{{Via::tma, kHere}, 8}, {{Via::tma, kThere}, 8}}));
  EXPECT_EQ(ways_of(tiles_of_plan("gemm_reduce_scatter", 512, 256, {.transport = Transport::bulk})),
            (Ways{{{Via::bulk, kHere}, 8}, {{Via::bulk, kThere}, 8}}));
  EXPECT_EQ(ways_of(tiles_of_plan("gemm_reduce_scatter", 512, 256, {.transport = Transport::ll})),
            (Ways{{{Via::threads, kHere}, 8}, {{Via::threads, kThere}, 8}}));
}

TEST(ChooseStores, BoxesLieInTheRegionOrEndWithTheBuffer) {
  // Shards of 250 rows: the first shard's second tile has 122 rows and ends in the middle, the other's ends with the
  // output.
  EXPECT_EQ(ways_of(tiles_of_plan("all_gather_gemm", 500, 256, {.schedule = "sequential"})),
            (Ways{{{Via::tma, kHere}, 6}, {{Via::threads, kHere}, 2}}));
  // 100 columns: a box ends with the row; the caller must align the rows.
  EXPECT_EQ(ways_of(tiles_of_plan("all_gather_gemm", 512, 200, {.schedule = "sequential"})),
            (Ways{{{Via::tma, kHere}, 8}}));
  // Slices of 48 rows of a tile go to each owner, and boxes of 64 would reach further.
  const Ways ways = ways_of(tiles_of_plan("gemm_reduce_scatter", 96, 256, {.transport = Transport::tma}));
  EXPECT_EQ(ways.count({Via::tma, kThere}), 0U);
}

TEST(ChooseStores, SlowTilesHaveNone) {
  const Problem problem{.op = "all_gather_gemm", .m = 512, .n = 256, .k = 256, .dtype = DType::fp32};
  Plan plan = make_plan(problem, {.num_ranks = 2}, {});
  const Plan before = plan;
  EXPECT_EQ(choose_stores_of(plan), "tiles run without tensor cores: type fp32");
  EXPECT_TRUE(plan == before);
}

}  // namespace
}  // namespace tilewire
