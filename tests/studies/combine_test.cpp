// Plans of a GEMM and an all-to-all behind it: the checker's proof, and hand-computed times.
// Built as the target `combine_test`.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "studies/combine_plans.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"
#include "unit/sim_machines.hpp"

namespace tilewire::cli {
namespace {

TEST(Combine, KernelsAreProven) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int copies : {1, 2}) {
      if (copies > ranks) continue;
      for (const int64_t rows : {int64_t{2}, int64_t{24}, int64_t{301}}) {
        const Combine combine{.ranks = ranks, .rows = rows, .n = 40, .k = 16, .copies = copies};
        const CheckResult result = check(combine_by_tiles(combine, 64, 16), combine_specification(combine));
        for (const Violation& violation : result.violations) ADD_FAILURE() << violation.text;
        // A rank keeps one of the ranks-th parts of its rows, of each copy.
        int64_t sent = 0;
        for (int owner = 0; owner < ranks; ++owner)
          sent += (rows * (owner + 1) / ranks - rows * owner / ranks) * (ranks - 1) * copies;
        EXPECT_EQ(result.total_bytes, sent * 40 * 2) << ranks << " ranks, " << copies << " copies of " << rows;
      }
    }
  }
}

TEST(Combine, OtherPlansAreRefused) {
  const Combine combine{.ranks = 3, .rows = 300, .n = 40, .k = 16};
  Plan early = combine_by_tiles(combine, 64, 16);
  for (Lane& lane : early.lanes) {
    for (Task& task : lane.tasks) {
      if (lane.name == "tiles") task.waits.clear();
    }
  }
  EXPECT_FALSE(check(early, combine_specification(combine)).ok()) << "stores at ranks that have not begun";
  Plan ends = combine_by_tiles(combine, 64, 16);
  for (Lane& lane : ends.lanes) {
    if (lane.name == "ready") lane.tasks.pop_back();
  }
  EXPECT_FALSE(check(ends, combine_specification(combine)).ok()) << "ranks end before their rows have come";
}

// One unit makes 1 FLOP a ns; links have 1 byte a ns and 10 ns.
TEST(Combine, TimesByHand) {
  const Machine machine = sim_machines::round_numbers(2);
  for (const int copies : {1, 2}) {
    const Combine combine{.ranks = 2, .rows = 512, .n = 256, .k = 64, .copies = copies};
    const double product = 2.0 * 512 * 256 * 64;
    const double exchange = copies * 256.0 * 256 * 2 + 10;
    EXPECT_NEAR(simulate(combine_in_turn(combine), machine).total_ns, product + exchange, 2);
    // The first tile waits 10 for its peer. With one copy all rows of the peer leave beside own rows; with two the last
    // tile, too, leaves: 128 x 128 elements.
    const double last = copies == 1 ? 0 : 128 * 128 * 2 + 10;
    EXPECT_NEAR(simulate(combine_by_tiles(combine, 128, 128), machine).total_ns, 10 + product + last, 2);
  }
}

// Columns of all rows or all columns of some rows: the kernel of the operator takes as long.
TEST(Combine, TakesAsLongAsTheOperatorByColumns) {
  const Machine machine = load_machine("mi210x4");
  const Combine combine{.ranks = 4, .rows = 2048, .n = 2048, .k = 2048};
  const Problem by_columns{.op = "gemm_all_to_all", .m = 4 * 2048, .n = 2048, .k = 2048, .dtype = DType::bf16};
  const Plan plan = make_plan(by_columns, team_of(machine, 4), {.schedule = "fused", .tile_m = 128, .tile_n = 128});
  const double columns_ns = simulate(plan, machine).total_ns;
  EXPECT_NEAR(simulate(combine_by_tiles(combine, 128, 128), machine).total_ns, columns_ns, 0.1 * columns_ns);
}

}  // namespace
}  // namespace tilewire::cli
