// tilewire bench, plan and info: printed text and written files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/command.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

/// The schedules that take an operator, with repeatable sums.
std::vector<std::string> schedules_of(const std::string& op, int ranks) {
  Problem problem{.op = op, .m = 64, .n = 64, .k = 64};
  if (!structure_of(problem).multiplies) problem.k = 0;
  std::vector<std::string> names;
  for (const Schedule& schedule : schedules()) {
    if (!schedule.refuses(problem, {.num_ranks = ranks}, {.schedule = schedule.name}))
      names.emplace_back(schedule.name);
  }
  return names;
}

TEST(Bench, JsonHasEveryFieldForEveryRow) {
  const Outcome outcome = run_tilewire(
      "bench all_gather_gemm gemm_reduce_scatter gemm_all_reduce all_reduce -m 70 -n 96 -k 64 --ranks 3 --dtype fp32 "
      "--iters 3 --set tile_m=32 --set tile_n=32 --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  for (const char* fact : {"cpu", "cores", "memory_bytes", "kernel", "compiler", "tilewire", "commit", "gemm"}) {
    EXPECT_TRUE(result["machine"].contains(fact)) << fact;
  }
  std::set<std::string> seen;
  for (const json& row : result["rows"]) {
    for (const char* field :
         {"operator", "schedule", "m", "n", "k", "ranks", "dtype", "total_us", "gemm_us", "comm_us", "sequential_us",
          "ect_us", "overlap", "rel_error", "ok", "samples_us", "config", "sequential_config"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
    seen.insert(row["operator"].get<std::string>() + " " + row["schedule"].get<std::string>());
    EXPECT_EQ(row["ok"], true) << row.dump();
    EXPECT_LT(row["rel_error"].get<double>(), 1e-5);
    EXPECT_EQ(row["ranks"], 3);
    EXPECT_EQ(row["samples_us"].size(), 3);
    EXPECT_EQ(row["config"]["tile_m"], 32);
    std::vector<double> samples = row["samples_us"];
    std::ranges::sort(samples);
    EXPECT_EQ(row["total_us"].get<double>(), samples[1]);
    EXPECT_EQ(row["gemm_us"].get<double>() > 0, row["operator"] != "all_reduce");
    EXPECT_GT(row["comm_us"].get<double>(), 0);
    if (row["schedule"] == "sequential") {
      EXPECT_EQ(row["total_us"], row["sequential_us"]);
    }
  }
  std::set<std::string> wanted;
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    for (const std::string& schedule : schedules_of(op, 3)) wanted.insert(op + (" " + schedule));
  }
  EXPECT_TRUE(wanted.contains("all_reduce two_stream"));
  EXPECT_EQ(seen, wanted);
}

TEST(Bench, TableNamesEveryScheduleAndTraceHoldsThemAll) {
  const std::string folder = fresh_folder();
  const Outcome outcome = run_tilewire("bench gemm_all_reduce -m 64 -n 64 -k 64 --ranks 2 --iters 1 --trace " + folder +
                                       "/t.json --json " + folder + "/r.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"operator", "overlap", "sequential", "fused", "two_stream", " ok"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  }
  const json rows = json::parse(read_text(folder + "/r.json"))["rows"];
  EXPECT_EQ(rows.size(), schedules_of("gemm_all_reduce", 2).size());
  for (const json& row : rows) EXPECT_GT(row.at("traced_us").get<double>(), 0);
  std::set<std::string> processes;
  int tasks = 0;
  const json trace = json::parse(read_text(folder + "/t.json"));
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") processes.insert(event["args"]["name"]);
    if (event["ph"] == "X") ++tasks;
  }
  EXPECT_EQ(processes.size(), 2 * schedules_of("gemm_all_reduce", 2).size()) << "schedules on two ranks";
  EXPECT_EQ(processes.count("gemm_all_reduce 64x64x64 fused: rank 1"), 1);
  EXPECT_GT(tasks, 12);
}

TEST(Bench, TraceIsSummarisedLaneByLane) {
  const std::string path = fresh_folder() + "/t.json";
  const Outcome outcome =
      run_tilewire("bench all_gather_gemm -m 64 -n 64 -k 64 --ranks 2 --iters 1 --schedule sequential --trace " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const size_t title = outcome.out.find("all_gather_gemm 64x64x64 sequential, traced call: overlap 0.");
  ASSERT_NE(title, std::string::npos) << outcome.out;
  std::istringstream lines(outcome.out.substr(title));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  EXPECT_NE(line.find("busy us"), std::string::npos) << line;
  int rank = 0;
  double busy = 0;
  double waiting = 0;
  double span = 0;
  std::map<int, double> busy_of;  // by rank
  while (std::getline(lines, line) && line.starts_with("  ")) {
    std::istringstream fields(line);
    std::string lane;
    ASSERT_TRUE(fields >> rank >> lane >> busy >> waiting >> span) << line;
    busy_of[rank] += busy;
    EXPECT_GE(busy, 0) << line;
    EXPECT_GE(waiting, 0) << line;
    EXPECT_GE(span, 0) << line;  // NOTE: a lane of one small copy may take less time than the printed digits show
  }
  ASSERT_EQ(busy_of.size(), 2);
  EXPECT_GT(busy_of[0], 0);
  EXPECT_GT(busy_of[1], 0);
  EXPECT_EQ(line, "trace in " + path + ": open it in ui.perfetto.dev");
}

TEST(Bench, ReferenceKeepsTheSettingsThatItTakes) {
  const std::string path = fresh_folder() + "/r.json";
  const Outcome outcome = run_tilewire(
      "bench gemm_reduce_scatter -m 64 -n 64 -k 64 --ranks 2 --iters 1 --schedule fused --set tile_m=32 "
      "--set tile_order=naive --set split_k=2 --set wire=fp32 --json " +
      path);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json row = json::parse(read_text(path))["rows"][0];
  EXPECT_EQ(row["config"]["tile_order"], "naive");
  EXPECT_EQ(row["sequential_config"]["schedule"], "sequential");
  EXPECT_EQ(row["sequential_config"]["tile_m"], 32);
  EXPECT_EQ(row["sequential_config"]["split_k"], 2);
  EXPECT_EQ(row["sequential_config"]["wire"], "fp32");
  EXPECT_FALSE(row["sequential_config"].contains("tile_order"));
  EXPECT_NE(outcome.out.find("gemm us, comm us and seq us are without --set tile_order=naive (knob tile_order = naive"),
            std::string::npos)
      << outcome.out;
}

constexpr const char* kConfigs = R"([
  {"name": "plain", "schedule": "sequential"},
  {"name": "naive order", "set": {"tile_order": "naive"}},
  {"name": "pull", "schedule": "fused", "set": {"direction": "pull", "chunk_rows": 8, "tile_m": 16}},
  {"name": "a ring that pulls", "set": {"direction": "pull", "algorithm": "ring"}},
  {"name": "two streams", "schedule": "two_stream"}])";

TEST(Bench, ConfigsAreRowsByNameAndRefusalsAreNamed) {
  const std::string folder = fresh_folder();
  write_text(folder + "/configs.json", kConfigs);
  const Outcome outcome = run_tilewire(
      "bench all_gather_gemm gemm_all_reduce -m 64 -n 64 -k 64 --ranks 2 --iters 2 --set tile_n=32 --configs " +
      folder + "/configs.json --json " + folder + "/r.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(read_text(folder + "/r.json"));
  std::vector<std::string> rows;
  for (const json& row : result["rows"]) {
    rows.push_back(row["operator"].get<std::string>() + " " + row["name"].get<std::string>());
    EXPECT_EQ(row["ok"], true) << row.dump();
    EXPECT_EQ(row["config"]["tile_n"], 32);
    EXPECT_EQ(row["samples_us"].size(), 2);
    EXPECT_FALSE(row.contains("graphs")) << "of devices";
  }
  EXPECT_EQ(rows, (std::vector<std::string>{"all_gather_gemm plain", "all_gather_gemm naive order",
                                            "all_gather_gemm pull", "gemm_all_reduce plain",
                                            "gemm_all_reduce naive order", "gemm_all_reduce two streams"}));
  EXPECT_EQ(result["rows"][1]["config"]["tile_order"], "naive");
  EXPECT_EQ(result["rows"][2]["config"]["chunk_rows"], 8);
  EXPECT_EQ(result["rows"][2]["config"]["tile_m"], 16);
  ASSERT_EQ(result["refused"].size(), 4U);
  EXPECT_EQ(result["refused"][0]["name"], "a ring that pulls");
  EXPECT_NE(result["refused"][0]["reason"].get<std::string>().find("a ring pushes"), std::string::npos);
  EXPECT_NE(outcome.out.find("  a ring that pulls: "), std::string::npos) << outcome.out;
}

TEST(Bench, WrongConfigsAreRefusedBeforeAnythingIsMeasured) {
  const std::string path = fresh_folder() + "/configs.json";
  const std::string args = "bench all_reduce -m 16 -n 16 --ranks 2 --iters 1 --configs " + path;
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"{", "malformed JSON"},
      {"[\n{]", "configs.json: malformed JSON: [json.exception.parse_error.101] parse error at line 2, column 2"},
      {"[]", "want a list of"},
      {R"(["fused"])", "want {"},
      {R"([{"schedule": "fused"}])", "no 'name'"},
      {R"([{"name": "a", "knobs": {}}])", "unknown field 'knobs'"},
      {R"([{"name": "a", "schedule": "best"}])", "configs.json[0]: unknown schedule 'best'"},
      {R"([{"name": "a", "set": {"tile": 3}}])", "configs.json[0]: unknown knob 'tile'"},
      {R"([{"name": "a", "set": 3}])", "want {knob: value}"},
      {R"([{"name": "a"}, {"name": "a"}])", "a second config named 'a'"}};
  for (const auto& [text, words] : wrong) {
    write_text(path, text);
    const Outcome outcome = run_tilewire(args);
    EXPECT_EQ(outcome.code, 2) << text << outcome.err;
    EXPECT_EQ(outcome.out, "") << text;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << text << outcome.err;
  }
  write_text(path, R"([{"name": "a"}])");
  EXPECT_EQ(run_tilewire(args + " --schedule fused").code, 2);
  write_text(path, R"([{"name": "a ring", "set": {"algorithm": "ring", "reduce_mode": "pull"}}])");
  const Outcome outcome = run_tilewire(args);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("every config was refused"), std::string::npos) << outcome.err;
}

TEST(Bench, UnwritableFilesAreRefusedBeforeAnythingIsMeasured) {
  const std::string folder = fresh_folder();
  write_text(folder + "/old.json", "old");
  for (const std::string& files :
       {"--json " + folder, "--trace " + folder, "--json " + folder + "/old.json --trace " + folder + "/no/t.json",
        "--json " + folder + "/new.json --trace " + folder + "/no/t.json"}) {
    const Outcome outcome = run_tilewire("bench all_reduce -m 16 -n 16 --ranks 2 --iters 1 " + files);
    EXPECT_EQ(outcome.code, 2) << files << outcome.err;
    EXPECT_EQ(outcome.out, "") << files;
    EXPECT_NE(outcome.err.find("cannot write it"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(read_text(folder + "/old.json"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder + "/new.json"));
}

TEST(Bench, NoVerifySaysSo) {
  const Outcome outcome =
      run_tilewire("bench all_reduce -m 16 -n 16 --ranks 2 --iters 1 --schedule fused --no-verify --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json row = json::parse(outcome.out)["rows"][0];
  EXPECT_TRUE(row["ok"].is_null());
  EXPECT_TRUE(row["rel_error"].is_null());
}

TEST(Bench, AutoRemembersItsChoice) {
  const std::string folder = fresh_folder();
  const std::string args = "bench gemm_all_reduce -m 32 -n 32 -k 32 --ranks 2 --iters 1 --schedule auto --json -";
  const std::string environment = "TILEWIRE_TUNER_FILE=" + folder + "/tuner.json";
  const Outcome first = run_tilewire(args, environment);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_FALSE(json::parse(read_text(folder + "/tuner.json")).empty());
  const Outcome second = run_tilewire(args, environment);
  ASSERT_EQ(second.code, 0) << second.err;
  const json row = json::parse(first.out)["rows"][0];
  EXPECT_EQ(row["schedule"], "auto");
  EXPECT_EQ(row["config"], json::parse(second.out)["rows"][0]["config"]);
}

TEST(Bench, ModelAndShapesNameTheSameLayer) {
  const std::string path = fresh_folder() + "/shapes.json";
  write_text(path, R"([{"m": 8, "n": 3072, "k": 3072}, {"m": 8, "n": 3072, "k": 12288}])");
  const std::string args = "plan gemm_reduce_scatter --summary --ranks 2 ";
  const Outcome by_file = run_tilewire(args + "--shapes " + path);
  const Outcome by_model = run_tilewire(args + "--model mega-gpt-2 --tokens 8");
  ASSERT_EQ(by_file.code, 0) << by_file.err;
  EXPECT_EQ(by_file.out, by_model.out);
}

TEST(Bench, RanksAsThreadsAndEmptyProblems) {
  for (const char* sizes : {"-m 40 -n 24 -k 16", "-m 0 -n 24 -k 16", "-m 3 -n 5 -k 0", "-m 1 -n 1 -k 1"}) {
    const Outcome outcome = run_tilewire(
        std::string("bench all_gather_gemm gemm_reduce_scatter gemm_all_reduce --bias --b-layout kn --ranks 4 "
                    "--threads --iters 1 ") +
        sizes);
    EXPECT_EQ(outcome.code, 0) << sizes << outcome.out << outcome.err;
  }
}

TEST(Info, NamesWhatIsThere) {
  const Outcome outcome = run_tilewire("info --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json info = json::parse(outcome.out);
  EXPECT_EQ(info["operators"].size(), operators().size());
  EXPECT_EQ(info["schedules"].size(), schedules().size());
  EXPECT_EQ(info["backends"][0]["name"], "host");
  EXPECT_NE(run_tilewire("info").out.find("oneDNN"), run_tilewire("info").out.find("plain loops"));
}

}  // namespace
}  // namespace tilewire::testing
