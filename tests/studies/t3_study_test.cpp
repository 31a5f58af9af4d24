// T3's study: Table 2 and its shapes; speedups, iterations and claims by hand, from made-up times.
// Built as the target `t3_study_test`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cli/geometric_mean.hpp"
#include "cli/models.hpp"
#include "studies/claim_checks.hpp"
#include "studies/t3_claims.hpp"
#include "studies/t3_results.hpp"
#include "tilewire/error.hpp"

namespace tilewire::cli {
namespace {

constexpr auto kOp = SubLayerKind::output_projection;
constexpr auto kFc2 = SubLayerKind::fc2;
constexpr auto kFc1 = SubLayerKind::fc1;
constexpr auto kIp = SubLayerKind::input_projection;

TEST(T3Models, AreTable2) {
  const std::vector<T3Model>& models = t3_models();
  ASSERT_EQ(models.size(), 5);
  EXPECT_EQ(models[0], (T3Model{"Mega-GPT-2", 3072, 74, 16384, 1024, {8, 16}}));
  EXPECT_EQ(models[1], (T3Model{"T-NLG", 4256, 78, 8192, 1024, {8, 16}}));
  EXPECT_EQ(models[2], (T3Model{"GPT-3", 12288, 96, 2048, 1024, {32}}));
  EXPECT_EQ(models[3], (T3Model{"PALM", 18432, 118, 2048, 1024, {32}}));
  EXPECT_EQ(models[4], (T3Model{"MT-NLG", 20480, 105, 2048, 1024, {32}}));
}

// NOTE: the widths of these models are in two tables: T3's, and that of --model.
TEST(T3Models, AreThoseOfTheFlagModel) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"Mega-GPT-2", "mega-gpt-2"}, {"T-NLG", "t-nlg"}, {"GPT-3", "gpt3-175b"}};
  for (const auto& [t3_name, name] : names) {
    const auto& all = t3_models();
    const auto t3 = std::ranges::find(all, t3_name, &T3Model::name);
    ASSERT_NE(t3, all.end()) << t3_name;
    const Model& model = find_model(name);
    EXPECT_EQ(model.hidden, t3->hidden) << name;
    const std::vector<SubLayer> layers = sub_layers_of(*t3, 1);
    EXPECT_EQ(model.attention, layers[0].k) << name;
    EXPECT_EQ(model.ffn, layers[1].k) << name;
    EXPECT_EQ(model.qkv, layers[3].k) << name;
  }
}

TEST(T3Models, SubLayersAreSlicedAlongK) {
  const std::vector<SubLayer> layers = sub_layers_of(t3_models()[1], 16);
  ASSERT_EQ(layers.size(), 4);
  EXPECT_EQ(layers[0], (SubLayer{"T-NLG", kOp, 16, 8192, 4256, 266}));
  EXPECT_EQ(layers[1], (SubLayer{"T-NLG", kFc2, 16, 8192, 4256, 1064}));
  EXPECT_EQ(layers[2], (SubLayer{"T-NLG", kFc1, 16, 8192, 4256, 1064}));
  EXPECT_EQ(layers[3], (SubLayer{"T-NLG", kIp, 16, 8192, 4256, 798}));
  std::string names;
  for (const SubLayer& layer : layers) names += short_name(layer.kind) + " ";
  EXPECT_EQ(names, "OP FC-2 FC-1 IP ");
  for (const T3Model& model : t3_models()) {
    for (const int tp : model.tp) EXPECT_NO_THROW(static_cast<void>(sub_layers_of(model, tp))) << model.name;
  }
}

TEST(T3Models, WhatDoesNotDivideIsRefused) {
  EXPECT_THROW(static_cast<void>(sub_layers_of(t3_models()[1], 0)), Error);
  try {
    static_cast<void>(sub_layers_of(t3_models()[1], 64));
    FAIL() << "4256 / 64";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    EXPECT_NE(std::string(error.what()).find("tp = 64 does not divide 4256"), std::string::npos) << error.what();
  }
}

TEST(T3Results, SpeedupsByHand) {
  const SubLayerTimes compute{
      .gemm_ns = 100, .rs_ns = 80, .rs_near_ns = 70, .ag_ns = 60, .fused_ns = 130, .fused_mca_ns = 110};
  EXPECT_DOUBLE_EQ(sequential_ns(compute), 240);
  EXPECT_DOUBLE_EQ(speedups_of(compute).t3, 240.0 / 190);
  EXPECT_DOUBLE_EQ(speedups_of(compute).t3_mca, 240.0 / 170);
  EXPECT_DOUBLE_EQ(speedups_of(compute).ideal_overlap, 1.5);
  EXPECT_DOUBLE_EQ(speedups_of(compute).ideal_near, 1.5) << "hidden by the GEMM";
  const SubLayerTimes links{
      .gemm_ns = 50, .rs_ns = 80, .rs_near_ns = 70, .ag_ns = 60, .fused_ns = 85, .fused_mca_ns = 75};
  EXPECT_DOUBLE_EQ(speedups_of(links).ideal_overlap, 190.0 / 140);
  EXPECT_DOUBLE_EQ(speedups_of(links).ideal_near, 190.0 / 130);
}

TEST(T3Results, MeansAndTraffic) {
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector{2.0, 8.0}), 4);
  EXPECT_EQ(geometric_mean({}), 0);
  SubLayerTimes times{.gemm_ns = 100, .rs_ns = 100, .rs_near_ns = 100, .ag_ns = 0, .fused_ns = 100, .fused_mca_ns = 50};
  times.sequential = {
      .gemm_reads = 10, .gemm_writes = 20, .rs_reads = 30, .rs_writes = 20, .ag_reads = 10, .ag_writes = 10};
  times.t3 = {.gemm_reads = 10, .gemm_writes = 15, .rs_reads = 15, .rs_writes = 15, .ag_reads = 10, .ag_writes = 10};
  EXPECT_DOUBLE_EQ(traffic_reduction(times), 0.25);
  std::vector<T3Row> rows(2, T3Row{.times = times});
  rows[1].times.fused_mca_ns = 200;
  rows[1].times.t3 = times.sequential;
  const T3Summary summary = summary_of(rows);
  EXPECT_DOUBLE_EQ(summary.geomean.t3, 2);
  EXPECT_DOUBLE_EQ(summary.geomean.t3_mca, 2) << "of 4 and 1";
  EXPECT_DOUBLE_EQ(summary.most.t3_mca, 4);
  EXPECT_DOUBLE_EQ(summary.mean_reduction, 0.125);
  EXPECT_DOUBLE_EQ(summary.most_reduction, 0.25);
  EXPECT_EQ(traffic_reduction({}), 0);
}

std::vector<T3Row> layer_of_four() {
  const auto row = [](SubLayerKind kind, double gemm_ns, double fused_ns) {
    return T3Row{.layer = {.model = "A", .kind = kind, .tp = 8},
                 .times = {.gemm_ns = gemm_ns,
                           .rs_ns = 50,
                           .rs_near_ns = 45,
                           .ag_ns = 50,
                           .fused_ns = fused_ns,
                           .fused_mca_ns = gemm_ns}};
  };
  return {row(kOp, 100, 110), row(kFc2, 400, 420), row(kFc1, 400, 420), row(kIp, 300, 320)};
}

// Forward: GEMMs 1200, two all-reduces 200, other work as much as both; T3 saves 40 and 30, T3-MCA twice 50.
// Backward: GEMMs 2400, 200, 2600; T3 saves 30 and 30, T3-MCA 100.
TEST(T3Results, IterationsByHand) {
  const std::vector<T3Iteration> iterations =
      iterations_of(layer_of_four(), {.attention_share = 0.5, .backward_gemms = 2});
  ASSERT_EQ(iterations.size(), 1);
  EXPECT_EQ(iterations[0].model, "A");
  EXPECT_EQ(iterations[0].tp, 8);
  const T3Phase& prompt = iterations[0].prompt;
  EXPECT_DOUBLE_EQ(prompt.gemm_ns, 1200);
  EXPECT_DOUBLE_EQ(prompt.communication_ns, 200);
  EXPECT_DOUBLE_EQ(prompt.other_ns, 1400);
  EXPECT_DOUBLE_EQ(prompt.t3_speedup(), 2800.0 / 2730);
  EXPECT_DOUBLE_EQ(prompt.t3_mca_speedup(), 2800.0 / 2700);
  const T3Phase& training = iterations[0].training;
  EXPECT_DOUBLE_EQ(training.sequential_ns(), 8000);
  EXPECT_DOUBLE_EQ(training.t3_speedup(), 8000.0 / 7870);
  EXPECT_DOUBLE_EQ(training.t3_mca_speedup(), 8000.0 / 7800);
  EXPECT_DOUBLE_EQ(training.communication_share(), 0.05);
}

TEST(T3Results, IterationsRefuseWhatTheyCannotTell) {
  std::vector<T3Row> rows = layer_of_four();
  EXPECT_THROW(static_cast<void>(iterations_of(rows, {.attention_share = 1})), Error);
  rows.erase(rows.begin() + 2);
  try {
    static_cast<void>(iterations_of(rows, {}));
    FAIL() << "without FC-1";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("FC-1 is missing"), std::string::npos) << error.what();
  }
}

// All sub-layers are alike: 1024 bytes of results, and the reduce-scatter takes as long as the GEMM.
std::vector<T3Row> rows_of(const std::string& model, int tp) {
  const int64_t chunk = 1024 / tp;
  SubLayerTimes times{
      .gemm_ns = 100, .rs_ns = 100, .rs_near_ns = 90, .ag_ns = 100, .fused_ns = 120, .fused_mca_ns = 110};
  times.sequential = {.gemm_reads = 300, .gemm_writes = 1024, .rs_reads = (2 * tp - 1) * chunk, .rs_writes = 1024};
  times.t3 = {
      .gemm_reads = 200, .gemm_writes = (tp - 1) * chunk, .rs_reads = (tp - 2) * chunk, .rs_writes = (tp - 1) * chunk};
  std::vector<T3Row> rows;
  for (const SubLayerKind kind : {kOp, kFc2, kFc1, kIp}) {
    rows.push_back({.layer = {.model = model, .kind = kind, .tp = tp, .m = 4, .n = 128, .k = 8}, .times = times});
  }
  return rows;
}

T3Study made_up() {
  T3Study study;
  for (const char* model : {"Mega-GPT-2", "T-NLG"}) {
    for (const int tp : {8, 16}) std::ranges::copy(rows_of(model, tp), std::back_inserter(study.rows));
  }
  study.large = rows_of("PALM", 32);
  for (const T3Row& row : study.rows) {
    if (row.layer.kind != kOp && row.layer.kind != kFc2) continue;
    study.twice_cu.push_back(row);
    study.twice_cu.back().times.fused_mca_ns = row.layer.kind == kOp ? 120 : 100;
  }
  study.splits.push_back(
      {.gemm_ns = 100, .ar_ns = 80, .gemm72_ns = 110, .ar8_ns = 120, .gemm64_ns = 125, .ar16_ns = 88});
  return study;
}

TEST(T3Claims, FiguresByHand) {
  const std::vector<ClaimResult> results = t3_claims(made_up()).claims;
  expect_claim(results, "QT05", {50, 1.5});
  expect_claim(results, "QT06", {10, 25, 1.44});
  expect_claim(results, "QT07", {1.8});
  expect_claim(results, "QT12", {50, 50});
  expect_claim(results, "QT13", {50, 50});
  expect_claim(results, "QT14", {11.11, 11.11, 0});
  expect_claim(results, "QT15", {36.36, 36.36});
  expect_claim(results, "QT16", {-9.09, -9.09, 9.09});
  expect_claim(results, "QT17", {42.86, 42.86});
  expect_claim(results, "QT18", {4.76, 4.76});
  expect_claim(results, "QT19", {7.14});
  expect_claim(results, "QT21", {2.35, 2.5, 2.21});
  expect_claim(results, "QT22", {9.43, 12.5, 6.25});
  expect_claim(results, "QT23", {1.5, 1.5, 1.5});
  expect_claim(results, "QT27", {42.86, 42.86});
  expect_claim(results, "QT29", {7.14, -6.49});
  expect_claim(results, "QT30", {2, 1});
}

// Forward: GEMMs 400 and all-reduces 400 are 57.5 % of the time, T3 saves 160 of 1391.3, T3-MCA 180. Training: 1200 and
// 800
// of 3478.3, 320 and 360.
TEST(T3Claims, EndToEndByHand) {
  const std::vector<ClaimResult> results = t3_claims(made_up()).claims;
  expect_claim(results, "QT02", {28.75, 28.75});
  expect_claim(results, "QT24", {10.13, 10.13, 11.545, 11.545});
  expect_claim(results, "QT25", {12.99, 12.99, 14.86, 14.86});
  expect_claim(results, "QT28", {11.545, 14.86});
}

TEST(T3Claims, EachIsAnsweredOrSaysWhyNot) { expect_all_answered(t3_claims(made_up()), "QT", 32); }

TEST(T3Claims, TrackerIsAsLargeAsItsFields) {
  T3Study study = made_up();
  EXPECT_TRUE(std::isnan(ours(t3_claims(study).claims, "QT10").at(0))) << "a machine without one";
  study.tracker = Tracker{};
  expect_claim(t3_claims(study).claims, "QT10", {19});
  study.tracker->ways = 4;
  expect_claim(t3_claims(study).claims, "QT10", {9.5});
}

}  // namespace
}  // namespace tilewire::cli
