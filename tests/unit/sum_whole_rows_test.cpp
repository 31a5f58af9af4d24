// Which sums are cut by rows for the norms behind them, and why others are not.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/gemm_tasks.hpp"
#include "tilewire/check.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/lower.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::row_sums {
namespace {

const Config kOneShot{
    .schedule = "fused", .tile_m = 64, .tile_n = 64, .transport = Transport::ll, .algorithm = Algorithm::one_shot};

Problem normed(const char* op, int64_t m = 5) {
  Problem problem{.op = op, .m = m, .n = 200, .k = 64, .dtype = DType::bf16, .norm = Norm{NormKind::layer}};
  problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::residual}};
  if (problem.op == "all_reduce") problem.k = 0;
  return problem;
}

Lowered lowered(const Problem& problem, const Config& config, const char* target = "h200x4") {
  const Target& found = find_target(target);
  Lowered result = lower(make_plan(problem, team_of(found, found.ranks), config), found);
  const CheckResult proof = check(result.plan);
  EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
  return result;
}

std::string note_of(const Lowered& lowered) {
  return std::ranges::find(lowered.notes, "sum_whole_rows", &PassNote::pass)->text;
}

const Lane& lane_of_norms(const Plan& plan, int rank) {
  return *std::ranges::find_if(
      plan.lanes, [&](const Lane& lane) { return lane.rank == rank && std::ranges::any_of(lane.tasks, is_norm); });
}

TEST(SumWholeRows, EachSumIsFollowedByTheNormOfItsRows) {
  for (const char* op : {"gemm_all_reduce", "all_reduce"}) {
    const Lowered made = lowered(normed(op), kOneShot);
    EXPECT_EQ(note_of(made), "5 sums of whole rows on each of 4 lanes, each before its norm") << op;
    for (int rank = 0; rank < 4; ++rank) {
      const Lane& lane = lane_of_norms(made.plan, rank);
      ASSERT_EQ(lane.tasks.size(), 10);
      for (size_t i = 0; i < lane.tasks.size(); i += 2) {
        const Task& sum = lane.tasks[i];
        const Task& norm = lane.tasks[i + 1];
        EXPECT_EQ(sum.kind, TaskKind::reduce);
        ASSERT_EQ(sum.reads.size(), 4);
        EXPECT_EQ(sum.writes[0].to, norm.reads[0]);
        EXPECT_EQ(norm.reads[0].cols, 200);
        EXPECT_EQ(sum.epilogue[0].operand->rows, 1) << "the bias";
        EXPECT_EQ(sum.epilogue[1].operand->row, static_cast<int64_t>(i) / 2) << "the residual";
        ASSERT_EQ(norm.waits.size(), 1);
        EXPECT_EQ(norm.waits[0].signal, sum.posts[0].signal);
      }
    }
  }
}

TEST(SumWholeRows, ManyRowsGoTogether) {
  const Lowered made = lowered(normed("all_reduce", 512), kOneShot, "h200x2");
  const Lane& lane = lane_of_norms(made.plan, 1);
  EXPECT_EQ(lane.tasks[0].writes[0].to.rows, 4);
  EXPECT_EQ(lane.tasks.size(), 256);
}

TEST(SumWholeRows, OthersStay) {
  Problem plain = normed("gemm_all_reduce");
  plain.norm.reset();
  EXPECT_EQ(note_of(lowered(plain, kOneShot)), "no norms");
  Config by_signals = kOneShot;
  by_signals.transport = Transport::store;
  EXPECT_EQ(note_of(lowered(normed("gemm_all_reduce"), by_signals)), "no LL data");
  Config two_phase = kOneShot;
  two_phase.algorithm = Algorithm::two_phase;
  EXPECT_EQ(note_of(lowered(normed("gemm_all_reduce"), two_phase)), "sums that are no whole rows of LL data");
}

}  // namespace
}  // namespace tilewire::row_sums
