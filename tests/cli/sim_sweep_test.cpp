// tilewire sim: sweeps, what they say where a better machine is slower, plans from files, defaults of machines.
// Built as part of the target `cli_test`.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>

#include "cli/command.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

json result_of(const std::string& args) {
  const Outcome outcome = run_tilewire("sim " + args + " --json -");
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
  const std::string text = run_tilewire(std::string("sim ") + kSlowerWithMore).out;
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
  EXPECT_FALSE(result_of("all_reduce --bytes 1e6 --machine h200x4").contains("anomalies"));
}

TEST(SimSweep, IsOneTableWithAColumnForEachKey) {
  const Outcome outcome = run_tilewire(
      "sim all_reduce --bytes 1e6 --topology ring:4 --sweep links.latency_ns=0,1500 --sweep "
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
  const Outcome refused = run_tilewire("sim " + args);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("compute.side_units = 32: want 0 to compute.units = 16"), std::string::npos)
      << refused.err;
  EXPECT_EQ(result_of(args + " --sweep compute.side_units=8")["rows"].size(), 2);
}

TEST(SimPlan, APlanFromAFileTakesAsLongAsItsOperator) {
  const std::string path = fresh_folder() + "/plan.json";
  const std::string args = "gemm_reduce_scatter -m 1024 -n 1024 -k 1024 --schedule fused --set tile_m=64";
  ASSERT_EQ(run_tilewire("plan " + args + " --ranks 4 --json " + path).code, 0);
  const json row = result_of(path + " --machine h200x4 --set links.latency_ns=900")["rows"][0];
  EXPECT_EQ(row["plan"], path);
  for (const char* field : {"rank_ns", "links", "memory", "units_busy", "lanes", "events", "total_us"}) {
    EXPECT_TRUE(row.contains(field)) << field;
  }
  const json asked = result_of(args + " --machine h200x4 --set links.latency_ns=900 --ranks 4")["rows"][0];
  EXPECT_EQ(row["total_ns"], asked["total_ns"]);
  const std::string text = run_tilewire("sim " + path + " --machine h200x4").out;
  for (const char* part : {"gemm_reduce_scatter", "ends us", "link MB", "read MB", "units"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(SimSweep, ATraceNamesEachPoint) {
  const std::string path = fresh_folder() + "/t.json";
  ASSERT_EQ(run_tilewire("sim all_reduce --bytes 1e6 --topology ring:2 --sweep links.latency_ns=0,1500 --sweep "
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

TEST(SimPlan, APlanThatIsNotProvenIsRefused) {
  const std::string folder = fresh_folder();
  const std::string path = folder + "/plan.json";
  ASSERT_EQ(run_tilewire("plan all_reduce -m 64 -n 64 --ranks 2 --json " + path).code, 0);
  json plan = json::parse(read_text(path));
  for (json& lane : plan["lanes"]) {
    for (json& task : lane["tasks"]) task.erase("waits");
  }
  write_text(path, plan.dump());
  const Outcome outcome = run_tilewire("sim " + path + " --machine h200x4");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("the checker refuses the plan"), std::string::npos) << outcome.err;
}

TEST(SimVerb, RowsSayWhatEachLaneDid) {
  const json row =
      result_of("gemm_reduce_scatter -m 2048 -n 1024 -k 1024 --machine h200x4 --schedule fused")["rows"][0];
  EXPECT_GT(row["events"], 0);
  std::map<int, int> lanes;
  double busy = 0;
  for (const json& lane : row["lanes"]) {
    ++lanes[lane["rank"].get<int>()];
    busy += lane["busy_ns"].get<double>();
    EXPECT_LE(lane["span_ns"].get<double>(), row["total_ns"].get<double>() + 1);
    EXPECT_GE(lane["waiting_ns"], 0);
    EXPECT_TRUE(lane["lane"].is_string() && lane["engine"].is_string());
  }
  EXPECT_EQ(lanes.size(), 4);
  EXPECT_GT(busy, 0);
}

TEST(SimVerb, BytesHaveUnits) {
  const std::string args = "all_reduce --topology ring:4 --bytes ";
  for (const auto& [text, bytes] : {std::pair<const char*, int64_t>{"64MiB", 64 << 20},
                                    {"1e6", 1000000},
                                    {"64KiB", 65536},
                                    {"1.5KiB", 1536},
                                    {"2MB", 2000000},
                                    {"77", 77}}) {
    EXPECT_EQ(result_of(args + text)["rows"][0]["bytes"], bytes) << text;
  }
  for (const char* bad : {"64Mib", "12q", "0x10", "inf", "1.5", "0.3KiB", "1e300", "MiB"}) {
    const Outcome outcome = run_tilewire("sim " + args + bad);
    EXPECT_EQ(outcome.code, 2) << bad;
    EXPECT_NE(outcome.err.find(std::string("--bytes ") + bad + ": want a "), std::string::npos) << outcome.err;
  }
}

// docs/simulator.md: rows "| `default` | `key`, `key` |" below "Where a file says nothing".
TEST(SimVerb, TheDocsHaveTheDefaultsOfAMachine) {
  const std::string path = fresh_folder() + "/machine.json";
  const json least = {{"name", "least"},
                      {"compute", {{"units", 1}, {"clock_GHz", 1}, {"flops_per_clock_per_unit", 1}}},
                      {"memory", {{"bandwidth_GBps", 1}}},
                      {"links", {{"dims", {2}}, {"bandwidth_GBps", 1}}},
                      {"controller", json::object()},
                      {"tracker", json::object()}};
  write_text(path, least.dump());
  const Outcome shown = run_tilewire("sim --show --machine " + path);
  ASSERT_EQ(shown.code, 0) << shown.err;
  std::map<std::string, std::string> defaults;
  const json machine = json::parse(shown.out);
  for (const auto& [part, values] : machine.items()) {
    if (!values.is_object()) continue;
    for (const auto& [key, value] : values.items()) {
      if (least.contains(part) && least[part].contains(key)) continue;
      std::ostringstream text;
      if (value.is_number()) {
        text << value.get<double>();
      } else {
        text << (value.is_string() ? value.get<std::string>() : value.dump());
      }
      defaults[part + "." + key] = text.str();
    }
  }
  const std::string docs = read_text(TILEWIRE_DOCS "/simulator.md");
  std::istringstream lines(docs.substr(docs.find("Where a file says nothing")));
  std::map<std::string, std::string> documented;
  const std::regex quoted("`([^`]*)`");
  for (std::string line; std::getline(lines, line) && !line.starts_with("`--topology");) {
    if (!line.starts_with("| `")) continue;
    std::string value;
    for (std::sregex_iterator at(line.begin(), line.end(), quoted), end; at != end; ++at) {
      if (value.empty()) {
        value = (*at)[1];
      } else {
        documented[(*at)[1]] = value;
      }
    }
  }
  for (const auto& [key, value] : defaults) EXPECT_EQ(documented[key], value) << key;
  EXPECT_EQ(documented.size(), defaults.size());
}

}  // namespace
}  // namespace tilewire::testing
