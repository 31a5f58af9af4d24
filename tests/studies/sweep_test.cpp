// tilewire-studies sweep from outside: grids, reports of a better machine that is slower, and refusals.
// Built as part of the target `studies_test`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "studies/run_studies.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

json result_of(const std::string& args) {
  const Outcome outcome = run_studies("sweep " + args + " --json -");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? json::parse(outcome.out) : json::object();
}

const char* const kSlowerWithMore =
    "gemm_reduce_scatter -m 4096 -n 8192 -k 8192 --machine mi300x_mesh8 --sweep compute.units=80:200:4";

TEST(SimSweep, WhereABetterMachineIsSlowerItSaysSo) {
  const json result = result_of(kSlowerWithMore);
  const json& anomalies = result["anomalies"];
  EXPECT_EQ(anomalies["steps"], 60) << "two schedules, 31 numbers of units";
  const json& slower = anomalies["slower"];
  ASSERT_GT(slower.size(), 5);
  double before = 1;
  for (const json& each : slower) {
    EXPECT_EQ(each["key"], "compute.units");
    EXPECT_EQ(each["to"].get<double>(), each["from"].get<double>() + 4);
    EXPECT_DOUBLE_EQ(each["slower"], each["to_ns"].get<double>() / each["from_ns"].get<double>() - 1);
    EXPECT_GT(each["slower"], 0);
    EXPECT_LE(each["slower"], before) << "worst first";
    before = each["slower"];
  }
  int found = 0;
  for (const json& row : result["rows"]) {
    if (row["schedule"] != slower[0]["schedule"] || row["settings"]["compute.units"] != slower[0]["to"]) continue;
    EXPECT_EQ(row["total_ns"], slower[0]["to_ns"]);
    ++found;
  }
  EXPECT_EQ(found, 1);
  const std::string text = run_studies(std::string("sweep ") + kSlowerWithMore).out;
  std::ostringstream said;
  said << slower.size() << " of 60 steps to a better value made a row slower, the worst first:\n";
  EXPECT_NE(text.find(said.str()), std::string::npos) << text;
  EXPECT_NE(text.find("and " + std::to_string(slower.size() - 5) + " more\n"), std::string::npos) << text;
}

TEST(SimSweep, NoCollectiveIsSlowerOnABetterNetwork) {
  for (const char* network : {"ring:4", "fully_connected:8", "switch:4", "torus2d:2x4", "two_level:2x2"}) {
    for (const char* algorithm : {"ring", "direct"}) {
      const json result = result_of(std::string("all_reduce all_gather reduce_scatter all_to_all --bytes 1e6") +
                                    " --topology " + network + " --algorithm " + algorithm +
                                    " --sweep links.bandwidth_GBps=50:400:25 --sweep links.latency_ns=0,100,1000");
      EXPECT_EQ(result["anomalies"]["steps"], 4 * (14 * 3 + 15 * 2)) << network << " " << algorithm;
      EXPECT_EQ(result["anomalies"]["slower"], json::array()) << network << " " << algorithm;
    }
  }
}

TEST(SimSweep, ValuesOfARangeAreRound) {
  const json result = result_of("all_reduce --bytes 1e6 --machine h200x4 --sweep compute.efficiency=0.1:1:0.3");
  ASSERT_EQ(result["rows"].size(), 4);
  EXPECT_EQ(result["rows"][3]["settings"]["compute.efficiency"].get<double>(), 1);
}

TEST(SimSweep, WhatIsNoBetterEitherWayIsNotCompared) {
  const json result = result_of("all_reduce --bytes 1e6 --machine h200x4 --sweep compute.side_units=8,32");
  EXPECT_EQ(result["anomalies"]["steps"], 0);
}

TEST(SimSweep, IsOneTableWithAColumnForEachKey) {
  const Outcome outcome = run_studies(
      "sweep all_reduce --bytes 1e6 --topology ring:4 --sweep links.latency_ns=0,1500 --sweep "
      "links.bandwidth_GBps=1,12.5");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "ring:4");
  std::getline(lines, line);
  EXPECT_TRUE(line.starts_with("links.latency_ns  links.bandwidth_GBps  collective ")) << line;
  for (const char* values :
       {"               0                     1  all_reduce ", "               0                  12.5  all_reduce ",
        "            1500                     1  all_reduce ", "            1500                  12.5  all_reduce "}) {
    std::getline(lines, line);
    EXPECT_TRUE(line.starts_with(values)) << line;
  }
}

TEST(SimSweep, ValuesThatDependOnEachOtherAreCheckedTogether) {
  const std::string args = "all_reduce --bytes 1e6 --machine h200x4 --sweep compute.units=16,32";
  const Outcome refused = run_studies("sweep " + args);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("compute.side_units = 32: want 0 to compute.units = 16"), std::string::npos)
      << refused.err;
  EXPECT_EQ(result_of(args + " --sweep compute.side_units=8")["rows"].size(), 2);
}

TEST(SimSweep, ATraceNamesEachPoint) {
  const std::string path = fresh_folder() + "/t.json";
  ASSERT_EQ(run_studies("sweep all_reduce --bytes 1e6 --topology ring:2 --sweep links.latency_ns=0,1500 --sweep "
                        "links.bandwidth_GBps=12.5 --trace " +
                        path)
                .code,
            0);
  const std::string trace = read_text(path);
  for (const char* title :
       {"ring all_reduce of 1000000 bytes, links.bandwidth_GBps = 12.5, links.latency_ns = 0: rank 0",
        "ring all_reduce of 1000000 bytes, links.bandwidth_GBps = 12.5, links.latency_ns = 1500: "})
    EXPECT_NE(trace.find(title), std::string::npos) << title;
}

TEST(SimSweep, IsAGridInOrder) {
  const json result = result_of(
      "reduce_scatter --bytes 1048576 --topology ring:4 --sweep links.bandwidth_GBps=100:300:100 "
      "--sweep links.latency_ns=0,1000");
  const json& rows = result["rows"];
  ASSERT_EQ(rows.size(), 6);
  double before = 1e18;
  for (int i = 0; i < 6; i += 2) {
    EXPECT_EQ(rows[i]["settings"]["links.bandwidth_GBps"], 100 * (i / 2 + 1));
    EXPECT_EQ(rows[i]["settings"]["links.latency_ns"], 0);
    EXPECT_NEAR(rows[i + 1]["total_ns"].get<double>() - rows[i]["total_ns"].get<double>(), 3000, 1);
    EXPECT_LT(rows[i]["total_ns"].get<double>(), before);
    before = rows[i]["total_ns"];
  }
}

struct SweepRefusal {
  const char* args;
  const char* part;
};
void PrintTo(const SweepRefusal& refusal, std::ostream* out) { *out << refusal.args; }

class SimSweepRefuses : public ::testing::TestWithParam<SweepRefusal> {};

TEST_P(SimSweepRefuses, InWords) {
  const Outcome outcome = run_studies(std::string("sweep ") + GetParam().args);
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.err.find(GetParam().part), std::string::npos) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    SimSweep, SimSweepRefuses,
    ::testing::Values(
        SweepRefusal{"all_reduce -m 8 -n 8 --machine h200x4 --sweep links.latency_ns=1,2 --sweep links.latency_ns=3",
                     "links.latency_ns is swept twice"},
        SweepRefusal{"all_reduce --bytes 8 --topology ring:4 --sweep links.latency_ns=1:2", "want from:to:step"},
        SweepRefusal{"all_reduce --bytes 8 --topology ring:4 --sweep links.latency_ns=1:2:0", "step 0 is not above 0"},
        SweepRefusal{"all_reduce --bytes 8 --topology ring:4 --sweep links.latency_ns=a", "'a' is no number"},
        SweepRefusal{"all_reduce -m 8 -n 8 --machine h200x4 --sweep tile_m=64,128",
                     "--sweep tile_m=64,128: tile_m is no value of a machine"},
        SweepRefusal{"all_reduce --bytes 8 --topology ring:4", "--sweep is required"},
        SweepRefusal{"--machine h200x4 --sweep links.latency_ns=1,2", "name an operator, a collective or the file"},
        SweepRefusal{"all_reduce --bytes 8 --topology ring:4 --set tile_m=3 --sweep links.latency_ns=1,2",
                     "no plan here has knobs"}));

}  // namespace
}  // namespace tilewire::testing
