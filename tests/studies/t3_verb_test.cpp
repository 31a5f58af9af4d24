// tilewire-studies t3, and its claims, from outside: tables, JSON, refusals.
// Built as part of the target `studies_test`.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "studies/run_studies.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

// This takes minutes with sanitizers; the smaller tests run the same code.
#if defined(TILEWIRE_ASAN) || defined(TILEWIRE_TSAN)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

TEST(SimT3, RowsSayTimesSpeedupsAndTraffic) {
  const std::string path = fresh_folder() + "/t3.json";
  const Outcome outcome = run_studies("t3 --models t-nlg --set compute.units=81 --json " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"t3_ring", "T-NLG", "FC-2", "geometric mean", "end to end", "assumed", "42.5 %"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  const json result = json::parse(read_text(path));
  EXPECT_EQ(result["machine"]["compute"]["units"], 81);
  ASSERT_EQ(result["rows"].size(), 8) << "four sub-layers at 8 and at 16";
  std::set<std::string> layers;
  for (const json& row : result["rows"]) {
    layers.insert(row["layer"]);
    const double sequential = row["gemm_ns"].get<double>() + row["rs_ns"].get<double>() + row["ag_ns"].get<double>();
    EXPECT_DOUBLE_EQ(row["sequential_ns"], sequential);
    EXPECT_DOUBLE_EQ(row["speedups"]["t3"], sequential / (row["fused_ns"].get<double>() + row["ag_ns"].get<double>()));
    const double before = row["traffic"]["sequential"]["total"];
    const double after = row["traffic"]["t3_mca"]["total"];
    EXPECT_NEAR(row["traffic_reduction"], 1 - after / before, 1e-12);
    EXPECT_GT(row["fused_mca_ns"], 0);
    EXPECT_GT(row["rs_near_ns"], 0);
  }
  EXPECT_EQ(layers, (std::set<std::string>{"OP", "FC-2", "FC-1", "IP"}));
  ASSERT_EQ(result["summaries"].size(), 1);
  EXPECT_EQ(result["summaries"][0]["title"], "TP 8 and 16");
  ASSERT_EQ(result["end_to_end"].size(), 2);
  EXPECT_GT(result["end_to_end"][0]["prompt"]["speedups"]["t3_mca"], 1);
  EXPECT_EQ(result["assumed"].size(), 5);
  EXPECT_NE(outcome.out.find("order Sequential < T3 <= T3-MCA <= Ideal-RS+NMC: "), std::string::npos) << outcome.out;
  EXPECT_TRUE(result["out_of_order"].is_array());
}

TEST(SimT3, SaysWhichConfigurationsAreInTheWrongOrder) {
  const std::string path = fresh_folder() + "/t3.json";
  const Outcome outcome = run_studies("t3 --models t-nlg --set controller.update_clocks=16 --json " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(read_text(path));
  const json& broken = result["out_of_order"];
  ASSERT_FALSE(broken.empty()) << "with slow updates T3-MCA is behind T3 (docs/simulator.md)";
  bool mca_behind = false;
  for (const json& each : broken) {
    mca_behind = mca_behind || (each["slower"] == "T3" && each["faster"] == "T3-MCA");
    for (const json& row : result["rows"]) {
      if (row["tp"] != each["tp"] || row["layer"] != each["layer"] || each["slower"] != "T3") continue;
      const double t3 = row["speedups"]["t3"];
      EXPECT_DOUBLE_EQ(each["by"], t3 / row["speedups"]["t3_mca"].get<double>() - 1);
    }
  }
  EXPECT_TRUE(mca_behind) << broken;
  EXPECT_NE(outcome.out.find("faster than T3-MCA\n"), std::string::npos) << outcome.out;
}

TEST(SimT3, LargerModelsHaveMeansOfTheirOwn) {
  if (kSlow) GTEST_SKIP() << "too slow with sanitizers";
  const Outcome outcome = run_studies("t3 --models GPT-3,gpt-3 --attention-share 0 --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["rows"].size(), 4);
  ASSERT_EQ(result["summaries"].size(), 1);
  EXPECT_EQ(result["summaries"][0]["title"], "TP 32");
  EXPECT_EQ(result["end_to_end"][0]["training"]["other_ns"], 0);
}

// Figure 17: the traffic of memory over time adds up to the total.
TEST(SimT3, TrafficOverTimeAddsUpToTheTrafficOfTheRow) {
  if (kSlow) GTEST_SKIP() << "too slow with sanitizers";
  const Outcome outcome = run_studies("t3 --models t-nlg --traffic t-nlg:16:op --interval 50 --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  const json& traffic = result["traffic_over_time"];
  const auto found =
      std::ranges::find_if(result["rows"], [](const json& row) { return row["tp"] == 16 && row["layer"] == "OP"; });
  ASSERT_NE(found, result["rows"].end());
  const json& row = *found;
  for (const char* name : {"model", "tp", "layer", "m", "n", "k"}) EXPECT_EQ(traffic[name], row[name]) << name;
  EXPECT_EQ(traffic["interval_ns"], 50000);
  EXPECT_EQ(traffic["gemm"]["total_ns"], row["gemm_ns"]);
  EXPECT_EQ(traffic["t3"]["total_ns"], row["fused_ns"]);
  EXPECT_EQ(traffic["t3_mca"]["total_ns"], row["fused_mca_ns"]);
  const auto sum = [&](const char* name, const char* stream) {
    const auto bytes = traffic[name][stream].get<std::vector<double>>();
    EXPECT_LE(bytes.size(), traffic[name]["total_ns"].get<double>() / 50000 + 1) << name;
    return std::accumulate(bytes.begin(), bytes.end(), 0.0);
  };
  const auto expect_books = [&](const char* name, const char* stream, const json& booked) {
    EXPECT_NEAR(sum(name, stream), booked.get<double>(), 1) << name << " " << stream;
  };
  expect_books("gemm", "compute_read_bytes", row["traffic"]["sequential"]["gemm_reads"]);
  expect_books("gemm", "compute_written_bytes", row["traffic"]["sequential"]["gemm_writes"]);
  expect_books("gemm", "communication_read_bytes", 0);
  expect_books("t3_mca", "compute_read_bytes", row["traffic"]["t3_mca"]["gemm_reads"]);
  expect_books("t3_mca", "compute_written_bytes", row["traffic"]["t3_mca"]["gemm_writes"]);
  expect_books("t3_mca", "communication_read_bytes", row["traffic"]["t3_mca"]["rs_reads"]);
  expect_books("t3_mca", "communication_written_bytes", row["traffic"]["t3_mca"]["rs_writes"]);
  expect_books("t3", "communication_written_bytes", row["traffic"]["t3_mca"]["rs_writes"]);
  for (const char* name : {"gemm", "t3", "t3_mca"}) {
    EXPECT_GE(traffic[name]["gemm_ns"], traffic["gemm"]["gemm_ns"]) << name << ": nothing makes the GEMM faster";
    EXPECT_LE(traffic[name]["gemm_ns"], traffic[name]["total_ns"].get<double>() + 1) << name;
  }
}

// Figures 6 and 20.
TEST(SimT3, OtherNumbersOfUnits) {
  if (kSlow) GTEST_SKIP() << "too slow with sanitizers";
  const std::string path = fresh_folder() + "/t3.json";
  const Outcome outcome =
      run_studies("t3 --units --set controller.request_bytes=4096 --set controller.step_k=128 --json " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"160 compute units", "compute units shared", "64-16"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  const json result = json::parse(read_text(path));
  EXPECT_EQ(result["rows"].size(), 16);
  ASSERT_EQ(result["twice_cu"].size(), 8);
  for (const json& row : result["twice_cu"]) {
    const auto same = std::ranges::find_if(result["rows"], [&](const json& each) {
      return each["model"] == row["model"] && each["tp"] == row["tp"] && each["layer"] == row["layer"];
    });
    ASSERT_NE(same, result["rows"].end());
    EXPECT_LT(row["gemm_ns"], (*same)["gemm_ns"]) << row;
  }
  ASSERT_EQ(result["splits"].size(), 4);
  for (const json& split : result["splits"]) {
    ASSERT_EQ(split["parts"].size(), 3);
    const json& whole = split["parts"][2];
    EXPECT_EQ(whole["name"], "ideal");
    for (const json& part : split["parts"]) {
      EXPECT_GE(part["gemm_ns"], whole["gemm_ns"]);
      EXPECT_GE(part["rs_ns"], whole["rs_ns"]);
      EXPECT_GT(part["ar_ns"], part["rs_ns"]);
      const double gemm = part["gemm_ns"];
      const double ar = part["ar_ns"];
      EXPECT_DOUBLE_EQ(part["speedup"],
                       (whole["gemm_ns"].get<double>() + whole["ar_ns"].get<double>()) / std::max(gemm, ar));
    }
  }
}

// NOTE: by larger requests and steps, in less time; no figure below is another by more than the tolerances.
TEST(SimClaims, HasPaperAndOurs) {
  if (kSlow) GTEST_SKIP() << "too slow with sanitizers";
  const std::string path = fresh_folder() + "/claims.json";
  const Outcome outcome =
      run_studies("claims --paper t3 --set controller.request_bytes=4096 --set controller.step_k=128 --json " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"QT05", "QT10", "QT17", "QT29", "not covered", "QT11", "assumed"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  const json result = json::parse(read_text(path));
  std::set<std::string> ids;
  for (const json& claim : result["claims"]) {
    ids.insert(claim["id"]);
    EXPECT_TRUE(claim["ours"].is_number()) << claim;
    EXPECT_EQ(claim["holds"].is_null(), claim["relation"] == "about") << claim;
  }
  // The study's results (docs/simulator.md): the paper's figure, and the allowed deviation of ours.
  const auto expect_near = [&](const std::string& id, const std::string& text, double most) {
    for (const json& claim : result["claims"]) {
      if (claim["id"] != id || claim["text"].get<std::string>().find(text) == std::string::npos) continue;
      EXPECT_NEAR(claim["ours"].get<double>(), claim["paper"].get<double>(), most) << claim;
      return;
    }
    ADD_FAILURE() << "no claim " << id << " with " << text;
  };
  expect_near("QT10", "Tracker", 0.5);
  expect_near("QT12", "geomean", 5);
  expect_near("QT12", "most", 8);
  expect_near("QT17", "geomean", 5);
  expect_near("QT17", "most", 8);
  expect_near("QT20", "mean", 6);
  expect_near("QT21", "geomean", 0.4);
  expect_near("QT24", "T3-MCA, geomean", 4);
  expect_near("QT25", "T3-MCA, geomean", 4);
  expect_near("QT27", "geomean", 6);
  EXPECT_EQ(ids.size(), 24) << "QT02, 03, 05 to 07, 10, 12 to 25, 27 to 30";
  EXPECT_FALSE(result["not_covered"].empty());
}

struct T3Refusal {
  const char* args;
  const char* part;
};
void PrintTo(const T3Refusal& refusal, std::ostream* out) { *out << refusal.args; }

class SimT3Refuses : public ::testing::TestWithParam<T3Refusal> {};

TEST_P(SimT3Refuses, InWords) {
  const Outcome outcome = run_studies(GetParam().args);
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.err.find(GetParam().part), std::string::npos) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    SimT3, SimT3Refuses,
    ::testing::Values(T3Refusal{"t3 --models bert",
                                "unknown model 'bert'; known: Mega-GPT-2, T-NLG, GPT-3, PALM, MT-NLG"},
                      T3Refusal{"t3 --models t-nlg --large", "--large: --models names them"},
                      T3Refusal{"t3 --models t-nlg --units", "--units is about the models of the paper's figures"},
                      T3Refusal{"t3 --units --set compute.units=72", "--units is about 80 and 160 units"},
                      T3Refusal{"t3 --traffic T-NLG:8:FC-2", "goes to the file of --json"},
                      T3Refusal{"t3 --traffic T-NLG --json -", "want a model, its TP and a sub-layer"},
                      T3Refusal{"t3 --traffic bert:8:FC-2 --json -", "--traffic: unknown model 'bert'"},
                      T3Refusal{"t3 --traffic T-NLG:4:FC-2 --json -", "T-NLG has TP 8, 16"},
                      T3Refusal{"t3 --traffic T-NLG:8:FC-2 --interval 0 --json -", "--interval 0: want 0.001 to"},
                      T3Refusal{"t3 --traffic T-NLG:8:FC-2 --interval 1e300 --json -", "want 0.001 to 1e9 us"},
                      T3Refusal{"t3 --interval 5 --json -", "--interval: goes with --traffic"},
                      T3Refusal{"t3 --attention-share 1", "--attention-share 1: want a share"},
                      T3Refusal{"t3 --machine nowhere", "the known machines are"},
                      T3Refusal{"t3 --set links.colour=2", "unknown field 'colour'"},
                      T3Refusal{"t3 --set controller.arbitration=round_robin", "the study sets the arbitration"},
                      T3Refusal{"t3 --set links.dims=[4]", "the number of devices itself"},
                      T3Refusal{"claims --paper t3 --set compute.units=160", "claims are about 80 and 160 units"},
                      T3Refusal{"t3 --machine mi300x_mesh8 --models t-nlg", "T3's study needs a ring"},
                      T3Refusal{"t3 --sweep compute.units=80,160", "call once for each value, with --set"},
                      T3Refusal{"claims --paper flux --sweep compute.units=80,160", "a study has one machine"},
                      T3Refusal{"t3 --json /nowhere/t3.json", "/nowhere/t3.json"},
                      T3Refusal{"t3 all_reduce", "not expected: all_reduce"}));

}  // namespace
}  // namespace tilewire::testing
