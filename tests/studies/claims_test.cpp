// The claims of papers on single shapes: the shapes, and hand-computed figures from made-up times.
// Built as the target `claims_test`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "studies/claim_checks.hpp"
#include "studies/claim_points.hpp"
#include "tilewire/error.hpp"

namespace tilewire::cli {
namespace {

// Every entry takes as long as the library's GEMM and collective, one after the other.
ClaimTimes made_up(const std::vector<ClaimPoint>& points) {
  ClaimTimes times;
  for (const ClaimPoint& point : points) {
    PointTimes& each =
        times.emplace_back(PointTimes{.point = point, .gemm_ns = 100, .comm_ns = 100, .sequential_ns = 200});
    for (const ClaimEntry& entry : point.entries) each.ns[entry.name] = 200;
    if (!point.rows.empty()) each.ns = {{"shards", 200}, {"chunks", 200}, {"tiles", 200}};
    if (point.copies > 0) each.ns = {{"tiles", 200}};
  }
  return times;
}

bool has(const ClaimEntry& entry, const std::string& set) {
  return std::ranges::find(entry.set, set) != entry.set.end();
}

TEST(Claims, NoValuesNoFigure) {
  EXPECT_DOUBLE_EQ(geomean(std::vector{2.0, 8.0}), 4);
  EXPECT_DOUBLE_EQ(most(std::vector{2.0, 8.0}), 8);
  EXPECT_DOUBLE_EQ(least(std::vector{2.0, 8.0}), 2);
  for (const double value : {geomean({}), most({}), least({})}) EXPECT_TRUE(std::isnan(value));
  EXPECT_DOUBLE_EQ(gain(1.25), 25);
  EXPECT_DOUBLE_EQ(loss(0.75), 25);
}

TEST(Claims, OneSidedClaimsHoldOrFail) {
  ClaimResult claim{.relation = ClaimRelation::above, .paper = 15, .ours = 16};
  EXPECT_EQ(claim.holds(), true);
  claim.relation = ClaimRelation::below;
  EXPECT_EQ(claim.holds(), false);
  claim.relation = ClaimRelation::about;
  EXPECT_EQ(claim.holds(), std::nullopt);
  EXPECT_DOUBLE_EQ(claim.difference(), 1);
  claim.relation = ClaimRelation::none;
  EXPECT_EQ(claim.holds(), std::nullopt);
}

TEST(Claims, EachIsAnsweredOrSaysWhyNot) {
  expect_all_answered(flux_claims(made_up(flux_points())), "QF", 25);
  ClaimTimes ficco = made_up(ficco_points());
  for (PointTimes& each : ficco) each.ns.insert({{"direct", 1}, {"ring", 1}});
  expect_all_answered(ficco_claims(ficco), "QC", 20);
  expect_all_answered(distfuse_claims(made_up(distfuse_points())), "QD", 14);
  expect_all_answered(fused_claims(made_up(fused_points())), "QA", 22);
}

TEST(Claims, WhatWasNotSimulatedIsADefect) {
  try {
    static_cast<void>(made_up(distfuse_points()).front().of("naive"));
    FAIL() << "there is no such entry";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(std::string(error.what()).find("'naive' was not simulated"), std::string::npos) << error.what();
  }
  EXPECT_THROW(static_cast<void>(distfuse_claims({})), Error);
}

TEST(FluxClaims, ShapesAreThoseOfGpt3) {
  const std::vector<ClaimPoint> points = flux_points();
  ASSERT_EQ(points.size(), 36) << "3 clusters, 6 numbers of rows, 2 operators";
  std::set<std::string> machines;
  for (const ClaimPoint& point : points) {
    machines.insert(point.machine);
    const bool gathers = point.op == "all_gather_gemm";
    EXPECT_EQ(point.n, gathers ? 49152 : 12288);
    EXPECT_EQ(point.k, gathers ? 12288 : 49152);
    EXPECT_EQ(point.ranks, 8);
    const bool compares = point.machine == "a100_nvlink8" && (point.m == 1024 || point.m == 8192);
    EXPECT_EQ(point.entries.size(), compares ? 3 : 1) << point.machine << " " << point.m;
  }
  EXPECT_EQ(machines, (std::set<std::string>{"a100_nvlink8", "a100_pcie8", "h800_nvlink8"}));
}

// Of 100 exposed: gathers leave 30 at 1024 rows, 10 more at each larger number of rows, and none at 64; reductions
// leave 20
// less. H800 has half of these.
TEST(FluxClaims, FiguresByHand) {
  ClaimTimes times = made_up(flux_points());
  for (PointTimes& each : times) {
    const ClaimPoint& point = each.point;
    const double more = point.m < 1024 ? -20 : 10 * std::log2(static_cast<double>(point.m) / 1024);
    double left = (point.m == 64 ? 0 : 30 + more) - (point.op == "all_gather_gemm" ? 0 : 20);
    if (point.machine == "h800_nvlink8") left /= 2;
    if (point.machine == "a100_pcie8") left += 100;
    each.ns[kKernel] = 100 + left;
    if (!each.ns.contains("naive")) continue;
    each.ns["shifted"] = 100;
    each.ns["naive"] = point.op == "all_gather_gemm" ? (point.m == 1024 ? 115 : 123) : (point.m == 1024 ? 110 : 120);
  }
  const std::vector<ClaimResult> results = flux_claims(times).claims;
  expect_claim(results, "QF01", {90});
  expect_claim(results, "QF05", {-60, -10, 40, 70, 95});
  expect_claim(results, "QF08", {-10, 20, 90, 120, 95, 110});
  expect_claim(results, "QF15", {-35, 65, 82.5});
  expect_claim(results, "QF18", {10, 20, 8});
  expect_claim(results, "QF22", {1.05, 1.6});
  expect_claim(results, "QF23", {-100.0 * 140 / 240 + 0});
}

TEST(FiccoClaims, ChunksAreEighthsOfShards) {
  const std::vector<ClaimPoint> points = ficco_points();
  int by_rows = 0;
  int gathers = 0;
  for (const ClaimPoint& point : points) {
    EXPECT_EQ(point.machine, "mi300x_mesh8");
    if (is_collective(point)) {
      ++gathers;
      continue;
    }
    if (!point.rows.empty()) continue;
    EXPECT_EQ(point.entries[0].name, "shard");
    EXPECT_TRUE(has(point.entries[0], "algorithm=ring")) << "from peer to peer";
    EXPECT_FALSE(std::ranges::any_of(point.entries[0].set, [](const std::string& set) {
      return set.starts_with("chunk_rows");
    })) << "whole shards";
    ASSERT_EQ(point.entries.size(), point.m > point.k ? 6 : 3) << point.name;
    EXPECT_EQ(point.entries[1].set, point.entries[0].set) << "its GEMMs alone";
    by_rows += point.m > point.k ? 1 : 0;
    for (size_t i = 2; i < point.entries.size(); ++i) {
      EXPECT_TRUE(has(point.entries[i], "chunk_rows=" + std::to_string(point.m / 64))) << point.name;
      EXPECT_TRUE(has(point.entries[i], "copy_lanes=7")) << point.name;
    }
  }
  EXPECT_EQ(by_rows, 7) << "g2, g4, g6, g8 to g11";
  EXPECT_EQ(gathers, 6) << "three of them, whole and an eighth";
  EXPECT_EQ(points.size() - 6 - 8, 11) << "g1 to g11";
}

TEST(FiccoClaims, ExpertsTakeAllRows) {
  int even = 0;
  int skewed = 0;
  for (const ClaimPoint& point : ficco_points()) {
    if (point.rows.empty()) continue;
    ASSERT_EQ(point.rows.size(), 8) << point.name;
    EXPECT_TRUE(point.n == 57344 || point.n == 28672) << "all of N";
    int64_t rows = 0;
    for (const int64_t each : point.rows) rows += each;
    EXPECT_NEAR(static_cast<double>(rows), static_cast<double>(point.m), 4) << point.name << ", rounded";
    const auto [least, most] = std::ranges::minmax(point.rows);
    if (point.name.ends_with("even")) {
      ++even;
      EXPECT_EQ(most, least);
      EXPECT_EQ(most, point.m / 8);
    } else {
      ++skewed;
      EXPECT_NEAR(static_cast<double>(most) / static_cast<double>(least), 8, 0.01) << "1 and 1/8";
    }
  }
  EXPECT_EQ(even, 4) << "g13 to g16";
  EXPECT_EQ(skewed, 4);
}

TEST(FiccoClaims, FiguresByHand) {
  ClaimTimes times = made_up(ficco_points());
  bool whole = false;
  for (PointTimes& each : times) {
    if (is_collective(each.point)) {
      whole = !whole;
      each.ns = {{"direct", whole ? 80 : 11}, {"ring", whole ? 560 : 77}};
      continue;
    }
    if (!each.point.rows.empty()) {
      const bool even = each.point.name.ends_with("even");
      each.gemm_ns = even ? 100 : 200;
      each.comm_ns = even ? 50 : 100;
      each.sequential_ns = !even ? 300 : each.point.name.starts_with("g14") ? 165 : 150;
      each.ns = {{"shards", even ? 200 : 400}, {"chunks", even ? 125 : 250}, {"tiles", even ? 120 : 240}};
      continue;
    }
    each.comm_ns = 50;
    each.sequential_ns = each.point.name == "g4" ? 180 : 150;  // ideal: 1.8, 1.5
    each.ns["shard"] = each.point.name == "g5" ? 600 : 200;
    each.ns["shards alone"] = 100;
    each.ns["chunks alone"] = each.point.name == "g1" ? 104 : 130;
    if (each.point.m <= each.point.k) continue;
    each.ns["tiles"] = each.point.name == "g4" ? 150 : 125;  // 1.2
    each.ns["calls"] = each.ns["tiles"] * 1.2;               // 1
    each.ns["units"] = each.ns["tiles"] * 1.5;
  }
  const std::vector<ClaimResult> results = ficco_claims(times).claims;
  const double one_of_four = std::pow(1.1, 0.25);  // g14, even: 165 instead of 150
  expect_claim(results, "QC01", {1.8, 1.65, 1.5, 2 / one_of_four});
  expect_claim(results, "QC02", {4, 560.0 / 50, 0.9, 0.825, 0.75});
  expect_claim(results, "QC04", {1.2, 1, 1.32, 1.375, 1.2, 1.25, 2});
  const double ideal = std::pow(1.8 * std::pow(1.5, 6), 1.0 / 7);
  const double ideal_of_experts = 1.5 * one_of_four - 1;
  expect_claim(results, "QC09",
               {100 * 0.2 / (ideal - 1), 0, 100 * (1.2 * one_of_four - 1) / ideal_of_experts,
                100 * (1.25 * one_of_four - 1) / ideal_of_experts});
  expect_claim(results, "QC11", {4});
  expect_claim(results, "QC12", {10});
  expect_claim(results, "QC16", {50});
}

TEST(FusedClaims, ShapesAreOnes) {
  int vectors = 0;
  int once = 0;
  int twice = 0;
  for (const ClaimPoint& point : fused_points()) {
    EXPECT_EQ(point.machine, "mi210x4");
    EXPECT_EQ(point.ranks, 4);
    if (point.copies == 0) {
      ++vectors;
      EXPECT_TRUE(point.set.empty());
      continue;
    }
    EXPECT_EQ(point.set, std::vector<std::string>{"compute.efficiency=0.68"}) << "Triton's GEMM";
    EXPECT_TRUE(point.m >= 2048 && point.m <= 16384) << "two rows of each token";
    ++(point.copies == 1 ? once : twice);
  }
  EXPECT_EQ(vectors, 8);
  EXPECT_EQ(once, 16);
  EXPECT_EQ(twice, 16);
}

TEST(FusedClaims, FiguresByHand) {
  ClaimTimes times = made_up(fused_points());
  for (PointTimes& each : times) {
    const bool tutel = each.point.k == 2048;
    if (each.point.copies == 0) {
      each.ns["gemv"] = each.point.n == 65536 ? 198 : 190;
    } else {
      each.ns["tiles"] = each.point.copies == 1 ? (tutel ? 160 : 180) : (tutel ? 140 : 190);
    }
  }
  const std::vector<ClaimResult> results = fused_claims(times).claims;
  expect_claim(results, "QA10", {4, 5});
  expect_claim(results, "QA11", {-4});
  expect_claim(results, "QA12", {12.5, 20, 11.25, 30});
}

TEST(DistfuseClaims, FiguresByHand) {
  const std::vector<ClaimPoint> points = distfuse_points();
  ASSERT_EQ(points.size(), 3);
  EXPECT_EQ(points[1].k, 28672);
  ClaimTimes times;
  times.push_back({.point = points[0],
                   .gemm_ns = 200000,
                   .comm_ns = 90000,
                   .sequential_ns = 300000,
                   .ns = {{kKernel, 250000}, {"apart a", 330000}, {"apart b", 340000}, {"beside a", 275000}}});
  times.push_back({.point = points[1],
                   .gemm_ns = 500000,
                   .comm_ns = 90000,
                   .sequential_ns = 600000,
                   .ns = {{kKernel, 580000}, {"apart a", 600000}, {"apart b", 594000}}});
  times.push_back({.point = points[2], .comm_ns = 90000, .sequential_ns = 90000, .ns = {{kKernel, 99000}}});
  const std::vector<ClaimResult> results = distfuse_claims(times).claims;
  expect_claim(results, "QD01", {35});
  expect_claim(results, "QD02", {300, 330, 250, 20});
  expect_claim(results, "QD03", {600, 594, 580, 100.0 / 29});
  expect_claim(results, "QD04", {20});
  expect_claim(results, "QD05", {10, -1});
  expect_claim(results, "QD06", {10});
}

}  // namespace
}  // namespace tilewire::cli
