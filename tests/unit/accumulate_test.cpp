// reduce_mode = accumulate: which rank adds when, and no deadlock, however the tiles are cut.
// NOTE: tests/operators compares the sums with the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/tile_order.hpp"
#include "tilewire/print.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

constexpr const char* kOperators[] = {"gemm_reduce_scatter", "gemm_all_reduce"};

Plan plan_of(const char* op, int64_t m, int ranks, const Config& config) {
  const Problem problem{.op = op, .m = m, .n = 64, .k = 32, .reduction = Reduction::any};
  return make_plan(problem, {.num_ranks = ranks}, config);
}

TEST(Accumulate, RanksAddInTheOrderInWhichTheyCome) {
  EXPECT_EQ(adders_of(4, 2, 2), (std::vector{1, 0, 3}));
  EXPECT_EQ(adders_of(4, 2, 1), (std::vector{0, 3, 2})) << "a tile of ranks 1 and 2: rank 2 comes last";
  EXPECT_EQ(adders_of(2, 0, 0), std::vector{1});
}

TEST(Accumulate, TheFirstStoresTheOthersAddAndTheOwnerHearsOfTheLast) {
  constexpr int kRanks = 4;
  for (const char* op : kOperators) {
    const Plan plan =
        plan_of(op, 128, kRanks, {.tile_m = 32, .tile_n = 64, .reduce_mode = ReduceMode::accumulate});  // a tile each
    const auto sum = std::ranges::find(plan.buffers, std::string("sum"), &Buffer::name) - plan.buffers.begin();
    EXPECT_EQ(shape_on(plan.buffers[sum], 0).rows, 2 * 32) << "the owner's part and that of all others";
    for (const Lane& lane : plan.lanes) {
      for (const Task& task : lane.tasks) {
        if (task.kind != TaskKind::compute) continue;
        const Write& write = task.writes[0];
        const int distance = (write.to.rank - lane.rank + kRanks) % kRanks;
        EXPECT_EQ(write.mode == WriteMode::accumulate, distance > 1) << op << ", " << distance << " before its owner";
        ASSERT_EQ(task.posts.size(), 1u);
        const int hears = distance == 0 || distance == 3 ? write.to.rank : (lane.rank + kRanks - 1) % kRanks;
        EXPECT_EQ(task.posts[0].signal.rank, hears);
      }
    }
  }
}

/// Tiles of several owners, of which each rank makes its own last.
TEST(Accumulate, NobodyWaitsInACircle) {
  for (const char* op : kOperators) {
    for (const auto& [m, tile_m, ranks] : {std::tuple{1000, 8, 4}, {100, 8, 4}, {256, 32, 3}, {5, 8, 4}, {37, 32, 7}}) {
      Config config{.tile_m = tile_m, .tile_n = 32, .reduce_mode = ReduceMode::accumulate};
      std::vector<Config> configs{config, config, config, config, config};
      configs[1].rounds = 2;
      configs[2].rounds = 3, configs[2].group_m = 3;
      configs[3].group_owners = 2, configs[3].group_m = 2;
      configs[4].tile_order = TileOrder::naive;
      for (const Config& each : configs) {
        const CheckResult result = check(plan_of(op, m, ranks, each));
        EXPECT_TRUE(result.ok()) << op << ", " << m << " rows, " << ranks << " ranks, " << to_string(each) << ": "
                                 << (result.ok() ? "" : result.violations[0].text);
      }
    }
  }
}

}  // namespace
}  // namespace tilewire
