// tilewire plan and check: a plan goes to a file and back; bad plans are refused with reasons.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

json make_plan_json(const std::string& args) {
  const Outcome outcome = run_tilewire("plan " + args + " --json -");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

TEST(Check, PlanFileIsProven) {
  const std::string path = fresh_folder() + "/plan.json";
  write_text(path, make_plan_json("gemm_reduce_scatter -m 300 -n 300 -k 64 --ranks 3").dump());
  const Outcome outcome = run_tilewire("check " + path);
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("1 plan checked, 0 refused"), std::string::npos) << outcome.out;
}

TEST(Check, EveryPlanOfAProblemIsProven) {
  const Outcome outcome = run_tilewire("check all_gather_gemm gemm_all_reduce -m 150 -n 130 -k 48 --ranks 3 --quiet");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find(" 0 refused"), std::string::npos) << outcome.out;
}

TEST(Check, SetHoldsInEveryCombination) {
  const Outcome outcome =
      run_tilewire("check gemm_reduce_scatter -m 64 -n 64 -k 64 --ranks 2 --schedule fused --set split_k=2");
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  std::istringstream lines(outcome.out);
  std::string line;
  int plans = 0;
  for (; std::getline(lines, line) && line.starts_with("proven"); ++plans) {
    EXPECT_NE(line.find("fused"), std::string::npos) << line;
    EXPECT_NE(line.find("\"split_k\":2"), std::string::npos) << line;
  }
  EXPECT_GT(plans, 20);
  EXPECT_EQ(line, std::to_string(plans) + " plans checked, 0 refused");
  for (const char* knob : {"\"wire\":\"fp32\"", "\"tile_order\":\"naive\"", "\"reduce_mode\":\"pull\""}) {
    EXPECT_NE(outcome.out.find(knob), std::string::npos) << knob;
  }
}

TEST(Check, WhatAutoChoosesIsCounted) {
  const Outcome outcome = run_tilewire("check all_reduce -m 16 -n 16 --ranks 2 --schedule auto",
                                       "TILEWIRE_TUNER_FILE=" + fresh_folder() + "/tuner.json");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(outcome.out.ends_with("\n1 plan checked, 0 refused\n")) << outcome.out;
}

TEST(Check, APlanFromAFileHasItsOwnFlags) {
  const std::string path = fresh_folder() + "/plan.json";
  write_text(path, make_plan_json("all_reduce -m 8 -n 8 --ranks 2").dump());
  for (const std::string flag : {"-m 8", "--ranks 2", "--schedule fused", "--set tile_m=8", "--bias"}) {
    const Outcome outcome = run_tilewire("check " + path + " " + flag);
    EXPECT_EQ(outcome.code, 2) << flag << outcome.out;
    const std::string says = flag.substr(0, flag.find(' ')) + ": goes with an operator; a plan from a file has its own";
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run_tilewire("check --quiet " + path).code, 0);
  EXPECT_EQ(run_tilewire("check " + path + " all_reduce -m 8 -n 8 --ranks 2 --quiet").code, 0);
}

TEST(Check, DroppedPostIsADeadlock) {
  const std::string path = fresh_folder() + "/plan.json";
  json plan = make_plan_json("gemm_reduce_scatter -m 256 -n 256 -k 64 --ranks 2");
  bool dropped = false;
  for (json& lane : plan["lanes"]) {
    for (json& task : lane["tasks"]) {
      if (dropped || !task.contains("posts") || task.value("kind", "sync") != "compute") continue;
      task.erase("posts");
      dropped = true;
    }
  }
  ASSERT_TRUE(dropped);
  write_text(path, plan.dump());
  const Outcome outcome = run_tilewire("check " + path);
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("REFUSED"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("progress: "), std::string::npos) << outcome.out;
}

TEST(Check, DroppedWaitIsARace) {
  const std::string path = fresh_folder() + "/plan.json";
  json plan = make_plan_json("gemm_reduce_scatter -m 256 -n 256 -k 64 --ranks 2");
  for (json& lane : plan["lanes"]) {
    for (json& task : lane["tasks"]) {
      if (task.value("kind", "sync") == "reduce") task.erase("waits");
    }
  }
  write_text(path, plan.dump());
  const Outcome outcome = run_tilewire("check " + path);
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("race: "), std::string::npos) << outcome.out;
}

struct BadPlan {
  const char* name;
  void (*spoil)(json& plan);
  const char* says;
};

class Malformed : public ::testing::TestWithParam<BadPlan> {};

TEST_P(Malformed, IsBadInput) {
  const std::string path = fresh_folder() + "/plan.json";
  json plan = make_plan_json("all_reduce -m 64 -n 64 --ranks 2");
  GetParam().spoil(plan);
  write_text(path, plan.dump());
  const Outcome outcome = run_tilewire("check " + path);
  EXPECT_EQ(outcome.code, 2) << outcome.out << outcome.err;
  EXPECT_NE(outcome.err.find(path), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(GetParam().says), std::string::npos) << outcome.err;
}

const BadPlan kBadPlans[] = {
    {"NoObject", [](json& plan) { plan = 3; }, "want an object"},
    {"UnknownField", [](json& plan) { plan["lane"] = 1; }, "unknown field 'lane'"},
    {"WrongType", [](json& plan) { plan["lanes"] = 1; }, "want a list"},
    {"UnknownKind", [](json& plan) { plan["lanes"][0]["tasks"][0]["kind"] = "think"; }, "think"},
    {"UnknownOperator", [](json& plan) { plan["note"]["problem"]["op"] = "gemm"; }, "unknown operator 'gemm'"},
    {"BadRank", [](json& plan) { plan["lanes"][0]["rank"] = 7; }, "7"},
    {"NegativeSize", [](json& plan) { plan["note"]["problem"]["m"] = -1; }, "negative"},
    {"Empty", [](json& plan) { plan = json::object(); }, "no note of its problem"},
};

INSTANTIATE_TEST_SUITE_P(Plans, Malformed, ::testing::ValuesIn(kBadPlans),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(Plan, IsLoweredForMachinesThatAreNotHere) {
  const std::string args = "plan gemm_reduce_scatter -m 1024 -n 1024 -k 1024 --target h200x4 ";
  const Outcome passes = run_tilewire(args + "--passes");
  EXPECT_EQ(passes.code, 0) << passes.err;
  for (const char* pass :
       {"lowered     for h200x4", "assign_engines", "part_slow_tiles", "unpair_tiles", "hint_caches", "defer_waits"})
    EXPECT_NE(passes.out.find(pass), std::string::npos) << passes.out;
  const std::string path = fresh_folder() + "/plan.json";
  const Outcome written = run_tilewire(args + "--lowered --after hint_caches --json " + path);
  ASSERT_EQ(written.code, 0) << written.err;
  const Outcome proven = run_tilewire("check " + path);
  EXPECT_EQ(proven.code, 0) << proven.out << proven.err;
  const Outcome unknown = run_tilewire("plan all_reduce -m 64 -n 64 --target b200");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("unknown target 'b200'; known: host, h100x1"), std::string::npos) << unknown.err;
  EXPECT_EQ(run_tilewire(args + "--after unroll").code, 2);
}

TEST(Check, TruncatedPlanFileIsBadInput) {
  const std::string path = fresh_folder() + "/plan.json";
  const std::string text = make_plan_json("all_reduce -m 64 -n 64 --ranks 2").dump();
  write_text(path, text.substr(0, text.size() / 2));
  const Outcome outcome = run_tilewire("check " + path);
  EXPECT_EQ(outcome.code, 2) << outcome.out << outcome.err;
  EXPECT_NE(outcome.err.find("malformed JSON"), std::string::npos) << outcome.err;
}

TEST(Plan, SummaryCountsTilesBytesAndWorkspace) {
  const Outcome outcome = run_tilewire("plan gemm_reduce_scatter -m 256 -n 256 -k 512 --ranks 2 --set tile_m=128");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"tiles       4 of GEMM", "1.00 x the least", "rank 0 -> rank 1  0.062 MiB", "symmetric",
                           "longest chain of tasks: ", "rank 1 lane tiles (tiles)", "waits ", "posts "}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
}

TEST(Plan, OneIsSingular) {
  const Outcome outcome = run_tilewire("plan all_reduce -m 8 -n 8 --ranks 1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("all_reduce on 1 rank: ")) << outcome.out;
  EXPECT_EQ(outcome.out.find(" 1 tasks"), std::string::npos) << outcome.out;
}

TEST(Plan, AutoSaysWhatWasMeasured) {
  const std::string args = "plan all_reduce -m 16 -n 16 --ranks 2 --schedule auto --summary";
  const std::string environment = "TILEWIRE_TUNER_FILE=" + fresh_folder() + "/tuner.json";
  const Outcome measured = run_tilewire(args, environment);
  ASSERT_EQ(measured.code, 0) << measured.err;
  for (const char* part : {"why: measured, medians of the slowest rank:", "all_reduce on 2 ranks: "})
    EXPECT_NE(measured.out.find(part), std::string::npos) << measured.out;
  EXPECT_NE(run_tilewire(args, environment).out.find("why: remembered from "), std::string::npos);
  const Outcome json_alone = run_tilewire(args + " --json -", environment);
  EXPECT_EQ(json::parse(json_alone.out)["note"]["problem"]["op"], "all_reduce") << "and nothing else";
}

// A plan for ranks of the host would differ.
TEST(Plan, WithoutAGpuThereAreNoPlansForOne) {
  const json backends = json::parse(run_tilewire("info --json -").out)["backends"];
  if (backends[1]["unavailable"].is_null()) GTEST_SKIP() << "there is a GPU";
  for (const std::string verb : {"plan", "check"}) {
    const Outcome outcome = run_tilewire(verb + " all_reduce -m 64 -n 64 --schedule fused --backend cuda");
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("backend cuda is not available: "), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("GPU choices without a GPU: tilewire sim --machine h200x4"), std::string::npos);
  }
}

TEST(Plan, ManyPlansDoNotFitOneFile) {
  const Outcome outcome = run_tilewire("plan all_reduce -m 8 -n 8 --schedule all --json -");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("name one schedule"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tilewire::testing
