// tilewire sim from outside: rows of plans from files, lanes, numbers of bytes, defaults of machines.
// Built as part of the target `cli_test`.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <utility>

#include "cli/command.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

json result_of(const std::string& args) {
  const Outcome outcome = run_tilewire("sim " + args + " --json -");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? json::parse(outcome.out) : json::object();
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
