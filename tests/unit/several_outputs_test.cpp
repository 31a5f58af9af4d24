// Plans of a gather with several outputs: traffic, the columns of each tile, names of buffers, refusals.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "every.hpp"
#include "lower/lane_roles.hpp"
#include "schedules/variants.hpp"
#include "tilewire/spi/lower.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

class SeveralOutputs : public ::testing::TestWithParam<const char*> {
 protected:
  /// With odd widths: shards of 6, 2 and 10 columns on two ranks; the last rank has one fewer.
  [[nodiscard]] static Problem problem() {
    return {.op = GetParam(), .m = 21, .n = 11, .k = 23, .more_n = {3, 19}, .reduction = Reduction::any};
  }
};

std::vector<std::string> names_of(const std::vector<Buffer>& buffers) {
  std::vector<std::string> names;
  for (const Buffer& buffer : buffers) names.push_back(buffer.name);
  return names;
}

std::string refusal_of(const Problem& problem, int ranks = 2) {
  try {
    validate(problem, ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

/// The operator with one output, of all columns.
int64_t bytes_with_one_output(Problem problem, int ranks) {
  problem.n = all_columns(problem);
  problem.more_n.clear();
  return specification_of(problem, ranks).least_bytes;
}

TEST_P(SeveralOutputs, AreMadeOfOneGather) {
  for (const int ranks : {1, 2, 3, 7}) {
    const Config base{.tile_m = 8, .tile_n = 4, .chunk_rows = 5};
    for (const Config& config : testing::every(all_variants(problem(), {.num_ranks = ranks}, base))) {
      const Plan plan = make_plan(problem(), {.num_ranks = ranks}, config);
      require_proven(plan);
      int64_t bytes = 0;
      for (const LinkTraffic& link : traffic_of(plan)) bytes += link.bytes;
      if (config.algorithm == Algorithm::ring) continue;  // passes parts on
      EXPECT_EQ(bytes, bytes_with_one_output(problem(), ranks)) << to_string(config);
    }
  }
}

TEST_P(SeveralOutputs, ATileHasColumnsOfOne) {
  const Plan plan = make_plan(problem(), {.num_ranks = 2}, {.tile_m = 8, .tile_n = 4});
  std::set<std::pair<std::string, std::string>> pairs;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::compute) continue;
      pairs.emplace(plan.buffers[task.reads[1].buffer].name, plan.buffers[task.writes[0].to.buffer].name);
      EXPECT_EQ(task.reads[1].row, task.writes[0].to.col) << "of B as rows of columns";
    }
  }
  EXPECT_EQ(pairs, (decltype(pairs){{"b", "c"}, {"b1", "c1"}, {"b2", "c2"}}));
}

TEST_P(SeveralOutputs, HaveBuffersOfTheirOwn) {
  Problem all = problem();
  all.epilogue = {{EpilogueKind::bias}, {EpilogueKind::residual}};
  all.gathered_output = true;
  const std::vector<Buffer> buffers = find_operator(all.op).buffers(all, 2);
  EXPECT_EQ(names_of(buffers), (std::vector<std::string>{"a", "b", "b1", "b2", "bias", "residual", "bias1", "residual1",
                                                         "bias2", "residual2", "c", "c1", "c2", "gathered"}));
  EXPECT_EQ(shape_on(buffers[12], 1).cols, 9) << "of 19 on the second rank";
  all.arena = {"b2", "c1"};
  EXPECT_EQ(refusal_of(all), "none");
}

TEST_P(SeveralOutputs, AreOnTensorCoresWhereOneIs) {
  const Problem large{.op = GetParam(), .m = 512, .n = 512, .k = 256, .more_n = {256, 768}, .dtype = DType::bf16};
  const Config config{.tile_m = 128, .tile_n = 128, .cluster_n = 2, .transport = Transport::copy_engine};
  const Lowered lowered = lower(make_plan(large, {.num_ranks = 2}, config), gpu_target("h200", 2, 132));
  require_proven(lowered.plan);
  int64_t tiles = 0;
  for (const Lane& lane : lowered.plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::compute) continue;
      ++tiles;
      EXPECT_TRUE(by_tensor_cores(lane));
      EXPECT_EQ(task.gemm.cluster_n, 2) << "shards of whole pairs of tiles";
    }
  }
  EXPECT_EQ(tiles, 2 * 4 * (2 + 1 + 3)) << "on 2 ranks, of 128 x 128";
}

INSTANTIATE_TEST_SUITE_P(Gathers, SeveralOutputs, ::testing::Values("all_gather_gemm", "all_gather_cols_gemm"));

TEST(SeveralOutputsOf, OperatorsThatGatherNothingAreRefused) {
  EXPECT_EQ(refusal_of({.op = "gemm_all_reduce", .m = 4, .n = 4, .k = 4, .more_n = {4}}),
            "more_n: only all_gather_* operators have several outputs, gemm_all_reduce has one");
  EXPECT_EQ(refusal_of({.op = "all_gather_gemm", .m = 4, .n = 4, .k = 4, .more_n = {4, -1}}),
            "more_n = -1 is negative");
  EXPECT_EQ(refusal_of({.op = "all_gather_gemm", .m = 4, .n = 4, .k = 4, .more_n = std::vector<int64_t>(64, 1)}),
            "more_n: 65 outputs, at most 64");
  EXPECT_EQ(refusal_of({.op = "all_gather_gemm", .m = 4, .n = 4, .k = 4, .arena = {"c1"}}),
            "arena: all_gather_gemm has no buffer 'c1'");
}

}  // namespace
}  // namespace tilewire
