// tilewire-studies claims for papers on single shapes, from outside: table, JSON, refusals.
// Built as part of the target `studies_test`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "studies/run_studies.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

json claims_json(const std::string& flags) {
  const Outcome outcome = run_studies("claims --json - " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, false);
}

double ours(const json& result, const std::string& text) {
  for (const json& claim : result["claims"]) {
    if (claim["text"] == text) return claim["ours"];
  }
  ADD_FAILURE() << "no claim '" << text << "'";
  return 0;
}

TEST(SimClaims, OnePaperAlone) {
  const std::string path = fresh_folder() + "/claims.json";
  const Outcome outcome = run_studies("claims --paper distfuse --json " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"DistFuse", "QD03", "down projection: PyTorch", "not covered", "QD14", "assumed"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  EXPECT_EQ(outcome.out.find("QT"), std::string::npos) << outcome.out;
  const json result = json::parse(read_text(path));
  EXPECT_FALSE(result.contains("machine")) << "which is T3's";
  ASSERT_EQ(result["machines"].size(), 1);
  EXPECT_EQ(result["machines"][0]["name"], "a100_nvlink8");
  ASSERT_EQ(result["points"].size(), 3);
  const json& attention = result["points"][0];
  EXPECT_EQ(attention["name"], "attention");
  EXPECT_NEAR(ours(result, "attention score: PyTorch"), attention["sequential_ns"].get<double>() * 1e-3, 1e-9);
  EXPECT_NEAR(ours(result, "attention score: with overlap"), attention["ns"]["kernel"].get<double>() * 1e-3, 1e-9);
  EXPECT_LT(attention["ns"]["kernel"], attention["ns"]["apart 128x128"]) << "overlap gains";
  EXPECT_LT(attention["gemm_ns"], attention["sequential_ns"]);
  for (const json& claim : result["claims"]) {
    EXPECT_EQ(claim["paper_name"], "distfuse");
    EXPECT_TRUE(claim["ours"].is_number()) << claim;
    EXPECT_FALSE(claim["assumed"].empty()) << claim;
  }
}

// The shapes of all papers, and the docs' text on them.
TEST(SimClaims, FiguresAreThoseOfTheResults) {
  const std::string path = fresh_folder() + "/claims.json";
  const Outcome outcome = run_studies("claims --paper flux,ficco,distfuse,fused_collectives --json " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(read_text(path));
  const json known = json::parse(read_text(TILEWIRE_RESULTS "/sim_claims.json"));
  ASSERT_EQ(result["claims"].size(), known["claims"].size());
  for (size_t i = 0; i < result["claims"].size(); ++i) {
    const json& claim = result["claims"][i];
    EXPECT_EQ(claim["text"], known["claims"][i]["text"]);
    ASSERT_TRUE(claim["ours"].is_number()) << claim;
    const double figure = known["claims"][i]["ours"];
    EXPECT_NEAR(claim["ours"].get<double>(), figure, 0.01 * std::abs(figure) + 0.01) << claim["text"];
  }
  const double below_one = ours(result, "shard by shard: speedup over serial, most");
  EXPECT_NE(outcome.out.find(fmt::format(" {:.3f} ", below_one)), std::string::npos) << "not rounded to 1";
  for (const json& point : result["points"]) {
    EXPECT_TRUE(point.contains("paper_name"));
    if (point["ns"].contains("calls")) {
      EXPECT_LT(point["ns"]["tiles"], point["ns"]["calls"]) << point["name"];
      EXPECT_LT(point["ns"]["calls"], point["ns"]["shard"]) << point["name"];
    }
  }
}

TEST(SimClaims, WhatIsSetConcernsThePapersMachines) {
  const json before = claims_json("--paper distfuse");
  const json after = claims_json("--paper distfuse,distfuse --set links.bandwidth_GBps=100");
  EXPECT_EQ(after["machines"][0]["links"]["bandwidth_GBps"], 100);
  EXPECT_EQ(after["claims"].size(), before["claims"].size()) << "once, also where it is named twice";
  const char* const text = "attention score: PyTorch";
  EXPECT_GT(ours(after, text), ours(before, text));
}

TEST(SimClaims, PapersInTheOrderOfTheTable) {
  const json result = claims_json("--paper fused_collectives --paper distfuse");
  EXPECT_EQ(result["not_covered"].front()["paper_name"], "distfuse");
  EXPECT_EQ(result["not_covered"].back()["paper_name"], "fused_collectives");
  EXPECT_EQ(result["not_covered"].back()["id"], "QA22");
}

// The all-reduce of a longer vector is a smaller part of the time; a slower RCCL is a larger one.
TEST(SimClaims, FusedGemvGainsWhereItsAllReduceCounts) {
  const json result = claims_json("--paper fused_collectives");
  ASSERT_EQ(result["points"].size(), 8 + 2 * 16);
  for (const json& point : result["points"]) {
    const json& ns = point["ns"];
    if (ns.contains("gemv")) {
      EXPECT_LT(ns["gemv"], point["sequential_ns"]) << point;
    }
  }
  const auto lower = [](const json& point) {
    return 1 - point["ns"]["gemv"].get<double>() / point["sequential_ns"].get<double>();
  };
  EXPECT_GT(lower(result["points"][0]), lower(result["points"][2]));
  EXPECT_GT(lower(result["points"][2]), lower(result["points"][4]));
  EXPECT_LT(ours(result, "the same: 64k outputs gain less than the others"), 0);
  const json slower = claims_json("--paper fused_collectives --set overheads.collective_ns=20000");
  const char* const mean = "GEMV + all-reduce: lower latency, mean";
  EXPECT_GT(ours(slower, mean), 2 * ours(result, mean));
}

// What decides the gain of GEMM + all-to-all: the share of the exchange, so the speed of the GEMM and of the links.
TEST(SimClaims, FusedExchangeGainsByItsShare) {
  const char* const mean = "GEMM + all-to-all: lower latency, mean";
  const json result = claims_json("--paper fused_collectives");
  const double as_assumed = ours(result, mean);
  EXPECT_NEAR(as_assumed, 12, 6);
  for (const json& point : result["points"]) {
    // Two copies of each row load the links of the kernel's stores, and may lose.
    const double most = point.value("copies", 1) == 2 ? 1.06 : 1.0;
    if (point["ns"].contains("tiles")) {
      EXPECT_LT(point["ns"]["tiles"].get<double>(), most * point["sequential_ns"].get<double>()) << point;
    }
  }
  const double slow_gemm = ours(claims_json("--paper fused_collectives --set compute.efficiency=0.3"), mean);
  EXPECT_LT(slow_gemm, as_assumed) << "a value of --set replaces that of the shapes";
  const double slow_links = ours(claims_json("--paper fused_collectives --set links.bandwidth_GBps=20"), mean);
  EXPECT_GT(slow_links, as_assumed);
}

TEST(SimClaims, OwnFiguresHaveNoPapers) {
  const json result = claims_json("--paper ficco");
  int own = 0;
  for (const json& claim : result["claims"]) {
    EXPECT_EQ(claim["relation"] == "none", claim["paper"].is_null()) << claim;
    EXPECT_EQ(claim["paper"].is_null(), claim["difference"].is_null()) << claim;
    own += claim["paper"].is_null() ? 1 : 0;
  }
  EXPECT_EQ(own, 6) << "of skewed routing";
}

struct ClaimsRefusal {
  const char* args;
  const char* part;
};
void PrintTo(const ClaimsRefusal& refusal, std::ostream* out) { *out << refusal.args; }

class SimClaimsRefuses : public ::testing::TestWithParam<ClaimsRefusal> {};

TEST_P(SimClaimsRefuses, InWords) {
  const Outcome outcome = run_studies(std::string("claims ") + GetParam().args);
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.err.find(GetParam().part), std::string::npos) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    SimClaims, SimClaimsRefuses,
    ::testing::Values(ClaimsRefusal{"--paper nccl",
                                    "unknown paper 'nccl'; known: t3, flux, ficco, distfuse, fused_collectives"},
                      ClaimsRefusal{"--set links.latency_ns=1", "name the one --paper whose machines it concerns"},
                      ClaimsRefusal{"--paper flux,t3 --set links.latency_ns=1", "name the one --paper"},
                      ClaimsRefusal{"--paper flux --machine h200x4", "--machine h200x4: goes with --paper t3"},
                      ClaimsRefusal{"--machine t3_ring", "--machine t3_ring: goes with --paper t3"},
                      ClaimsRefusal{"--paper flux --set links.colour=1", "unknown field 'colour'"},
                      ClaimsRefusal{"--paper flux --set links.latency_ns", "want KEY=VALUE"},
                      ClaimsRefusal{"--paper distfuse --set links.dims=[2]", "2 devices, want 4 ranks"},
                      ClaimsRefusal{"--paper flux --json /nowhere/claims.json", "/nowhere/claims.json"}));

}  // namespace
}  // namespace tilewire::testing
