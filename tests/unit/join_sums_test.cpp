// Which sums are joined to the tiles of few rows, and why others are not.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/gemm_tasks.hpp"
#include "lower/gemv_tiles.hpp"
#include "lower/lane_roles.hpp"
#include "tilewire/check.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/lower.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

const Config kGemv{
    .schedule = "fused", .tile_m = 16, .tile_n = 64, .transport = Transport::ll, .algorithm = Algorithm::one_shot};

Problem few_rows(int64_t m = 4) { return {.op = "gemm_all_reduce", .m = m, .n = 1000, .k = 512, .dtype = DType::bf16}; }

Lowered lowered(const Problem& problem, const Config& config, const char* target = "h200x4") {
  const Target& found = find_target(target);
  Lowered result = lower(make_plan(problem, team_of(found, found.ranks), config), found);
  EXPECT_EQ(from_json_text<Plan>(to_string(result.plan)), result.plan);
  const CheckResult proof = check(result.plan);
  EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
  return result;
}

bool joins(const Plan& plan) { return std::ranges::any_of(plan.lanes, &Lane::joined); }

std::string note_of(const Lowered& lowered, const std::string& pass) {
  const auto note = std::ranges::find(lowered.notes, pass, &PassNote::pass);
  return note == lowered.notes.end() ? "no such pass" : note->text;
}

TEST(JoinSums, NormsStoreTheColumnsOfTheirSums) {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    Problem problem = few_rows(5);
    problem.norm = Norm{kind};
    problem.epilogue = {{EpilogueKind::residual}};
    const Lowered made = lowered(problem, kGemv);
    EXPECT_EQ(note_of(made, "join_sums"), "16 CTAs make a tile and its sum, and normalise it");
    const auto joined = std::ranges::find(made.plan.lanes, true, &Lane::joined);
    ASSERT_EQ(joined->tasks.size(), 32);
    for (size_t i = 0; i < 16; ++i) {
      const Task& sum = joined->tasks[i];
      const Task& norm = joined->tasks[16 + i];
      const Region& made_here = sum.writes[0].to;
      EXPECT_EQ(sum.kind, TaskKind::reduce);
      EXPECT_EQ(norm.norm.kind, kind);
      EXPECT_EQ(Shape(norm.reads[0].rows, norm.reads[0].cols), Shape(5, 1000)) << "whole rows";
      EXPECT_EQ(norm.writes[0].first_col, made_here.col);
      EXPECT_EQ(norm.writes[0].to.col, made_here.col);
      EXPECT_EQ(norm.writes[0].to.cols, made_here.cols);
      EXPECT_EQ(norm.waits[0].signal, sum.posts[0].signal);
    }
  }
}

TEST(JoinSums, RowsOfAnAllReduceAreSummedWhereTheyAreSent) {
  for (const bool norm : {false, true}) {
    Problem problem{.op = "all_reduce", .m = 5, .n = 1000, .dtype = DType::bf16};
    if (norm) problem.norm = Norm{};
    Config config = kGemv;
    config.tile_m = 1;
    config.tile_n = 1000;
    const Lowered made = lowered(problem, config);
    const std::string tail =
        norm ? " CTAs send a part of a row and sum it, and normalise it" : " CTAs send a part of a row and sum it";
    EXPECT_EQ(note_of(made, "join_sums"), "5" + tail);
    const auto sums = std::ranges::find(made.plan.lanes, true, &Lane::joined);
    EXPECT_EQ(sums->tasks.size(), norm ? 10 : 5);
    config.tile_n = 504;
    const Lowered parts = lowered(problem, config);
    EXPECT_EQ(note_of(parts, "join_sums"), "10" + tail);
    const CheckResult proof = check(parts.plan, specification_of(problem, parts.plan.team.num_ranks));
    EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
    config.tile_m = 2;
    EXPECT_NE(note_of(lowered(problem, config), "join_sums").find("want parts of one row"), std::string::npos);
  }
}

/// With a norm the CTAs of a row are a cluster, which needs a whole GPU, and room for such clusters.
TEST(JoinSums, ClustersOfRowsNeedAWholeGpu) {
  Problem problem{.op = "all_reduce", .m = 5, .n = 1000, .dtype = DType::bf16, .norm = Norm{}};
  Config config = kGemv;
  config.tile_m = 1;
  config.tile_n = 504;
  Target part = find_target("h200x2");
  part.whole_gpu = false;
  const auto note = [&] {
    const Lowered made = lower(make_plan(problem, team_of(part, 2), config), part);
    const CheckResult proof = check(made.plan, specification_of(problem, 2));
    EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
    return note_of(made, "join_sums");
  };
  EXPECT_EQ(note(), "2 parts of a row with a norm are a cluster, which may not fit into a part of the GPU");
  problem.norm.reset();
  EXPECT_EQ(note(), "10 CTAs send a part of a row and sum it");
  config.tile_n = 104;
  problem.norm = Norm{NormKind::rms, 1e-6, DType::int8};
  EXPECT_EQ(note(), "10 parts of a row with a norm, want at most 8");
  const auto columns = [](int64_t m, std::optional<Norm> norm) {
    const Problem wide{.op = "all_reduce", .m = m, .n = 16384, .dtype = DType::bf16, .norm = norm};
    const auto list = find_schedule("fused").named_candidates(wide, team_of(find_target("h200x2"), 2));
    return std::ranges::find(list, std::string("rows, one-shot"), &Candidate::way)->config.tile_n;
  };
  EXPECT_EQ(columns(32, std::nullopt), 4096);
  EXPECT_EQ(columns(32, Norm{}), 8192) << "30 clusters of four such CTAs would fit";
  EXPECT_EQ(columns(16, Norm{}), 2048);
}

/// The copies follow one call of the library, in a stage of their own, and wait for nothing.
TEST(JoinSums, RowsOfAGemmOfTheLibraryAreSummedWhereTheyAreSent) {
  for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
    Problem problem = few_rows(5);
    problem.b_layout = layout;
    problem.norm = Norm{};
    Config config = kGemv;
    config.compute = Provider::library;
    config.tile_m = 1;
    config.tile_n = 504;
    const Lowered made = lowered(problem, config);
    EXPECT_EQ(note_of(made, "stage_gemm_call"),
              "4 of 4 ranks call the library between two kernels; their order replaces 40 waits");
    EXPECT_EQ(note_of(made, "join_sums"), "10 CTAs send a part of a row and sum it, and normalise it");
    int calls = 0;
    for (const Lane& lane : made.plan.lanes) {
      for (const Task& task : lane.tasks) {
        calls += task.kind == TaskKind::gemm_call ? 1 : 0;
        EXPECT_TRUE(task.kind != TaskKind::gemm_call || task.posts.empty());
        EXPECT_TRUE(task.kind != TaskKind::copy || (lane.stage == kStageAfterCall && task.waits.empty()));
      }
    }
    EXPECT_EQ(calls, 4);
    const CheckResult proof = check(made.plan, specification_of(problem, 4));
    EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
  }
}

TEST(JoinSums, EveryTypeAndLayout) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
      Problem problem = few_rows();
      problem.dtype = dtype;
      problem.b_layout = layout;
      EXPECT_EQ(note_of(lowered(problem, kGemv), "join_sums"), "16 CTAs make a tile and its sum");
    }
  }
}

TEST(JoinSums, EachTileIsFollowedByItsSum) {
  for (const char* target : {"h200x2", "h200x4"}) {
    const Lowered made = lowered(few_rows(), kGemv, target);
    EXPECT_EQ(note_of(made, "join_sums"), "16 CTAs make a tile and its sum");
    for (int rank = 0; rank < made.plan.team.num_ranks; ++rank) {
      const Lane* tiles = nullptr;
      const Lane* sums = nullptr;
      int others = 0;
      for (const Lane& lane : made.plan.lanes) {
        if (lane.rank != rank) continue;
        if (lane.joined) sums = &lane;
        if (std::ranges::any_of(lane.tasks, is_gemm_tile)) tiles = &lane;
        others += std::ranges::all_of(lane.tasks, [](const Task& task) { return task.kind == TaskKind::sync; }) ? 1 : 0;
      }
      ASSERT_NE(tiles, nullptr);
      ASSERT_NE(sums, nullptr);
      EXPECT_EQ(others, 0) << "LL data are double-buffered";
      ASSERT_EQ(tiles->tasks.size(), sums->tasks.size());
      EXPECT_EQ(tiles->workers, 16);
      EXPECT_EQ(sums->workers, 16);
      for (size_t i = 0; i < tiles->tasks.size(); ++i) {
        EXPECT_EQ(tiles->tasks[i].kind, TaskKind::compute);
        EXPECT_EQ(tiles->tasks[i].reads[1].row, sums->tasks[i].writes[0].to.col);
      }
    }
  }
}

TEST(JoinSums, ReasonsAgainst) {
  const auto reason = [&](const Problem& problem, const Config& config) {
    const Lowered made = lowered(problem, config);
    EXPECT_FALSE(joins(made.plan));
    return note_of(made, "join_sums");
  };
  Config stores = kGemv;
  stores.transport = Transport::store;
  EXPECT_EQ(reason(few_rows(), stores), "no LL data");
  Config large = kGemv;
  large.tile_m = 64;
  EXPECT_EQ(reason(few_rows(), large), "tiles of 64 x 64, want at most 16 x 128");
  Problem other = few_rows();
  other.dtype = DType::fp32;
  Config half = kGemv;
  half.tile_n = 128;
  EXPECT_EQ(reason(other, half), "tiles of 16 x 128, want at most 16 x 64");
  other = few_rows();
  other.n = 1001;
  EXPECT_EQ(reason(other, kGemv), "tiles of 4 x 41 over K = 128, want columns and K in multiples of 8");
  other = few_rows();
  other.n = 64 * 200;
  EXPECT_EQ(reason(other, kGemv), "200 tiles, want at most 128, one for each CTA");
  Config wide = kGemv;
  wide.wire = DType::fp32;
  EXPECT_EQ(reason(few_rows(), wide), "tiles that are not sent whole as LL data");
  Config two_phase = kGemv;
  two_phase.algorithm = Algorithm::direct;
  EXPECT_FALSE(joins(lowered(few_rows(), two_phase).plan));
}

TEST(JoinSums, IsACandidateOfFewRows) {
  const Target& target = find_target("h200x2");
  const auto found = [&](const Problem& problem, const char* way = "GEMV, one-shot") {
    const auto list = find_schedule("fused").named_candidates(problem, team_of(target, 2));
    return std::ranges::count(list, std::string(way), &Candidate::way);
  };
  EXPECT_EQ(found(few_rows(1)), 1);
  EXPECT_EQ(found(few_rows(16)), 1);
  EXPECT_EQ(found(few_rows(17)), 0);
  Problem odd = few_rows();
  odd.n = 1001;
  EXPECT_EQ(found(odd), 0);
  const Target& one = find_target("h200x1");
  const Problem gemm{.op = "all_gather_gemm", .m = 4, .n = 28672, .k = 4096, .dtype = DType::bf16};
  for (const Candidate& each : find_schedule("fused").named_candidates(gemm, team_of(one, 1))) {
    const Plan plan = lower(make_plan(gemm, team_of(one, 1), each.config), one).plan;
    EXPECT_EQ(lane_of_gemv_alone(plan, 0) >= 0, each.way == std::string("GEMV")) << each.way;
    if (each.way != std::string("GEMV")) continue;
    EXPECT_EQ(each.config.tile_n, 112) << "two waves of 128 tiles";
  }
  Problem pairs = gemm;
  pairs.epilogue = {{EpilogueKind::swiglu_pairs}};
  const auto ways = find_schedule("fused").named_candidates(pairs, team_of(one, 1));
  const auto way = std::ranges::find(ways, std::string("GEMV"), &Candidate::way);
  ASSERT_NE(way, ways.end());
  EXPECT_EQ(way->config.tile_n, 56) << "of 112 columns of B";
  EXPECT_GE(lane_of_gemv_alone(lower(make_plan(pairs, team_of(one, 1), way->config), one).plan, 0), 0);
  EXPECT_EQ(lane_of_gemv_alone(lowered(few_rows(), kGemv).plan, 0), -1) << "sums over ranks follow";
  Problem alone{.op = "all_reduce", .m = 5, .n = 1000, .dtype = DType::bf16};
  EXPECT_EQ(found(alone, "rows, one-shot"), 1);
  EXPECT_EQ(found(few_rows(64), "GEMM of the library, rows, one-shot"), 1);
  EXPECT_EQ(found(few_rows(129), "GEMM of the library, rows, one-shot"), 0);
  alone.m = 129;
  EXPECT_EQ(found(alone, "rows, one-shot"), 0);
  alone = {.op = "all_reduce", .m = 5, .n = 1001, .dtype = DType::bf16};
  EXPECT_EQ(found(alone, "rows, one-shot"), 0);
}

}  // namespace
}  // namespace tilewire
