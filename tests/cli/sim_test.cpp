// tilewire sim from outside: tables, JSON, comparison, refusals.
// Built as part of the target `cli_test`.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cli/command.hpp"
#include "every.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

json rows_of(const std::string& args) {
  const Outcome outcome = run_tilewire("sim " + args + " --json -");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? json::parse(outcome.out)["rows"] : json::array();
}

TEST(SimVerb, ARowHasBenchsFieldsAndNanoseconds) {
  const json rows = rows_of("all_gather_gemm -m 8192 -n 49152 -k 12288 --machine h200x4 --schedule fused");
  ASSERT_EQ(rows.size(), 1);
  const json& row = rows[0];
  for (const char* field : {"operator",
                            "m",
                            "n",
                            "k",
                            "schedule",
                            "ranks",
                            "dtype",
                            "total_us",
                            "gemm_us",
                            "comm_us",
                            "sequential_us",
                            "overlap",
                            "config",
                            "sequential_config",
                            "link_us",
                            "free_us",
                            "total_ns",
                            "gemm_ns",
                            "comm_ns",
                            "sequential_ns",
                            "rank_ns",
                            "links",
                            "memory",
                            "units_busy",
                            "machine"}) {
    EXPECT_TRUE(row.contains(field)) << field;
  }
  EXPECT_EQ(row["ranks"], 4);
  EXPECT_EQ(row["links"].size(), 8) << "to the switch and from it";
  EXPECT_GT(row["overlap"], 0.5);
  EXPECT_EQ(row["free_ns"], row["gemm_ns"]) << "the link is idle most of the time";
  EXPECT_LT(row["total_ns"], row["sequential_ns"]);
  EXPECT_EQ(row["total_us"].get<double>(), row["total_ns"].get<double>() * 1e-3);
}

#if !defined(TILEWIRE_ASAN) && !defined(TILEWIRE_TSAN)
TEST(SimVerb, APlanThatIsTooLargeIsListedWithTheReason) {
  const Outcome outcome = run_tilewire("sim all_reduce -m 4096 -n 4096 --machine dlrm_torus128 --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_FALSE(result["rows"].empty());
  bool listed = false;
  for (const json& row : result["refused"]) {
    listed |= row["name"] == "two_stream" &&
              row["reason"].get<std::string>().find("more than 1000000 tasks") != std::string::npos;
  }
  EXPECT_TRUE(listed) << result["refused"].dump(1);
}
#endif

TEST(SimVerb, TheTableNamesSchedulesAndTheTraceHasEveryRank) {
  const std::string path = fresh_folder() + "/t.json";
  const Outcome outcome =
      run_tilewire("sim gemm_all_reduce -m 1024 -n 1024 -k 1024 --machine mi300x_mesh8 --trace " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"mi300x_mesh8", "sequential", "fused", "two_stream", "traced call: overlap"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  }
  std::set<std::string> processes;
  const json trace = json::parse(read_text(path));
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") processes.insert(event["args"]["name"]);
  }
  EXPECT_GE(processes.size(), 24) << "three schedules or more on eight ranks";
  EXPECT_EQ(processes.size() % 8, 0);
}

TEST(SimVerb, BelowTheTableItSaysWhatSequentialIs) {
  const std::string args = "sim gemm_reduce_scatter -n 8192 -k 8192 --machine mi300x_mesh8 --schedule auto ";
  const Outcome one = run_tilewire(args + "-m 4096");
  ASSERT_EQ(one.code, 0) << one.err;
  const size_t begin = one.out.find("\nseq us: fastest of ");
  ASSERT_NE(begin, std::string::npos) << one.out;
  const std::string says =
      " sequential configs (sequential {\"collective\":\"library\",\"compute\":\"library\"}), sums in any order\n";
  EXPECT_TRUE(one.out.ends_with(says)) << one.out;
  EXPECT_EQ(run_tilewire("sim all_reduce --bytes 8 --topology ring:4").out.find("seq us"), std::string::npos);
}

TEST(SimVerb, ACollectiveAloneOnABareNetwork) {
  const json rows = rows_of(
      "all_reduce all_gather --bytes 1048576 --topology ring:4 --set links.bandwidth_GBps=150 "
      "--set links.latency_ns=500 --algorithm ring");
  ASSERT_EQ(rows.size(), 2);
  EXPECT_NEAR(rows[0]["total_ns"].get<double>(), 13489, 15);
  EXPECT_NEAR(rows[1]["total_ns"].get<double>(), 22474, 25);
  EXPECT_EQ(rows[0]["collective"], "all_reduce");
  EXPECT_EQ(rows[0]["bytes"], 1048576);
}

TEST(SimVerb, AutoIsNoSlowerThanAnySchedule) {
  const std::string args = "gemm_reduce_scatter -m 4096 -n 4096 -k 4096 --machine h800_nvlink8";
  const json best = rows_of(args + " --schedule auto");
  ASSERT_EQ(best.size(), 1);
  for (const json& row : rows_of(args)) EXPECT_LE(best[0]["total_ns"], row["total_ns"]);
}

// Knobs that are not set come from the candidate that agrees with --set, not from the first one that is not refused.
TEST(SimVerb, KnobsThatAreNotSetGoWithThoseThatAre) {
  const std::string gather = "all_gather_gemm -m 512 -n 49152 -k 12288 --machine h200x4 --schedule ";
  const json engines = rows_of(gather + "fused --set transport=copy_engine --set chunk_cols=3072").at(0);
  EXPECT_FALSE(engines["config"].contains("chunk_rows")) << "which is for copies by workers: " << engines["config"];
  EXPECT_EQ(engines["config"]["chunk_cols"], 3072);
  const std::string sum = "gemm_all_reduce -m 300 -n 8192 -k 28672 --machine h200x4 --schedule ";
  const json pulled = rows_of(sum + "sequential --set compute=library --set reduce_mode=pull").at(0);
  EXPECT_EQ(pulled["config"]["tile_m"], 5) << "a piece for each CTA: " << pulled["config"];
}

// T3's own machine: its ring, and as many copies in flight as in T3's study.
TEST(SimVerb, TrackAndTriggerIsForItsOwnMachine) {
  const std::string args = "gemm_reduce_scatter -m 4096 -n 3072 -k 3072 --reduction any --machine t3_ring";
  const json row = rows_of(args + " --schedule track_trigger").at(0);
  EXPECT_EQ(row["config"]["algorithm"], "ring");
  EXPECT_EQ(row["config"]["copy_lanes"], 64);
  EXPECT_LT(row["total_ns"], row["sequential_ns"]);
  const json best = rows_of(args + " --schedule auto").at(0);
  EXPECT_EQ(best["config"]["schedule"], "track_trigger");
  EXPECT_EQ(best["total_ns"], row["total_ns"]);
  const json direct = rows_of(args + " --schedule track_trigger --set algorithm=direct").at(0);
  EXPECT_FALSE(direct["config"].contains("copy_lanes")) << "which a direct reduce-scatter has no use for";
  EXPECT_GT(direct["total_ns"], row["total_ns"]);
  const json few = rows_of(args + " --schedule track_trigger --set copy_lanes=2").at(0);
  EXPECT_EQ(few["config"]["copy_lanes"], 2);
}

TEST(SimVerb, ItComparesWithWhatWasMeasured) {
  const std::string folder = fresh_folder();
  const std::string row = R"({"operator": "gemm_reduce_scatter", "m": 4096, "n": 4096, "k": 4096, "ranks": 4,
    "dtype": "bf16", "total_us": 200.0, "gemm_us": 100.0, "comm_us": 90.0, "config": {"tile_m": 128}})";
  write_text(folder + "/bench.json", R"({"rows": [)" + row + "]}");
  const Outcome outcome =
      run_tilewire("sim --machine h200x4 --compare " + folder + "/bench.json --json " + folder + "/both.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("all: geometric-mean error"), std::string::npos) << outcome.out;
  const json both = json::parse(read_text(folder + "/both.json"));
  const double ratio = both["rows"][0]["predicted_us"].get<double>() / 200;
  EXPECT_NEAR(both["geometric_mean_error"].get<double>(), std::max(ratio, 1 / ratio) - 1, 1e-9);
  EXPECT_EQ(both["rows"][0]["measured_comm_us"], 90);
  const json least = rows_of("gemm_reduce_scatter -m 4096 -n 4096 -k 4096 --machine h200x4 --schedule sequential");
  EXPECT_DOUBLE_EQ(both["rows"][0]["predicted_comm_us"], least[0]["comm_us"]) << "here the library's is the fastest";
  write_text(folder + "/bench.json", R"({"rows": [{"operator": "gemm_reduce_scatter"}]})");
  const Outcome bad = run_tilewire("sim --machine h200x4 --compare " + folder + "/bench.json");
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("row 0: no 'm': want rows of `tilewire bench --json`"), std::string::npos) << bad.err;
}

// The mean error of the rows for which `counts` holds, as in docs/simulator.md.
std::string mean_error(const json& rows, const std::function<bool(const json&)>& counts) {
  double sum = 0;
  int count = 0;
  for (const json& row : rows) {
    if (!counts(row)) continue;
    sum += std::abs(std::log(row["predicted_us"].get<double>() / row["measured_us"].get<double>()));
    ++count;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), " %.1f %% |", 100 * (std::exp(sum / count) - 1));
  return text.data();
}

TEST(SimVerb, ItIsAsNearToWhatWasMeasuredAsTheDocsSay) {
  const std::string docs = read_text(TILEWIRE_DOCS "/simulator.md");
  const std::vector<std::pair<const char*, double>> files{{"peers_x2.json", 0.07},  {"peers_x4.json", 0.12},
                                                          {"others_x4.json", 0.25}, {"others_x2.json", 0.15},
                                                          {"ragged_x2.json", 0.16}, {"ragged_x4.json", 0.16}};
  for (const auto& [file, most] : every(files)) {
    const Outcome outcome =
        run_tilewire(std::string("sim --machine h200x4 --json - --compare " TILEWIRE_RESULTS "/") + file);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json result = json::parse(outcome.out);
    EXPECT_LT(result["geometric_mean_error"], most) << file;
    std::string said = mean_error(result["rows"], [](const json&) { return true; });
    for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"})
      said += mean_error(result["rows"], [&](const json& row) { return row["operator"] == op; });
    said += mean_error(result["rows"], [](const json& row) { return row["m"] >= 1024; });
    const size_t begin = docs.find(std::string("| `") + file + "`, ");
    ASSERT_NE(begin, std::string::npos) << file;
    const std::string line = docs.substr(begin, docs.find('\n', begin) - begin);
    EXPECT_TRUE(line.ends_with(" |" + said)) << line << "\nwhere it is\n" << said;
  }
}

TEST(SimVerb, MachinesAreListedAndShown) {
  EXPECT_NE(run_tilewire("sim --list").out.find("t3_ring"), std::string::npos);
  const Outcome shown = run_tilewire("sim --show --machine h200x4 --set links.latency_ns=123");
  ASSERT_EQ(shown.code, 0) << shown.err;
  const json machine = json::parse(shown.out);
  EXPECT_EQ(machine["links"]["latency_ns"], 123);
  const std::string path = fresh_folder() + "/m.json";
  write_text(path, shown.out);
  EXPECT_EQ(run_tilewire("sim --show --machine " + path).out, shown.out) << "what is shown can be read again";
}

struct Refusal {
  const char* args;
  const char* part;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.args; }

class SimRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(SimRefuses, InWords) {
  const Outcome outcome = run_tilewire(std::string("sim ") + GetParam().args);
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.err.find(GetParam().part), std::string::npos) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    SimVerb, SimRefuses,
    ::testing::Values(
        Refusal{"all_reduce -m 8 -n 8", "give one of --machine"},
        Refusal{"all_reduce -m 8 -n 8 --machine nowhere", "the known machines are"},
        Refusal{"all_reduce -m 8 -n 8 --machine h200x4 --topology ring:4", "give one of --machine"},
        Refusal{"--machine h200x4", "name an operator, a collective or the file of a plan"},
        Refusal{"all_reduce --bytes 1024 --topology star:4", "'star' is none of ring, fully_connected, switch,"},
        Refusal{"all_reduce --bytes 1024 --topology ring:4 --set links.bandwidth_GBps=0", "links.bandwidth_GBps = 0"},
        Refusal{"all_reduce --bytes 1024 --topology ring:4 --set links.topology=mesh",
                "links.topology: unknown 'mesh'; known: ring, fully_connected, switched"},
        Refusal{"nowhere/plan.json --machine h200x4", "nowhere/plan.json: cannot open it"},
        Refusal{"plan.json --machine h200x4 -m 8", "-m: a plan from a file has its own"},
        Refusal{"plan.json all_reduce --machine h200x4", "name files of plans or operators, not both"},
        Refusal{"plan.json --machine h200x4 --set tile_m=3", "no plan here has knobs"},
        Refusal{"all_reduce --bytes 1024 --topology ring:4 --set links.bandwidth_GBps=1e-300",
                "links.bandwidth_GBps = 1e-300: want 0.001 to"},
        Refusal{"all_reduce --bytes 1024 --topology ring:4 --set links.latency_ns=1e300",
                "links.latency_ns = 1e+300: want 0 to"},
        Refusal{"all_reduce --bytes 1024 --topology ring:4 --set links.colour=2", "unknown field 'colour'"},
        Refusal{"all_reduce --bytes 1024 --topology ring:4 --algorithm tree",
                "--algorithm: unknown 'tree'; known: ring, direct, halving_doubling"},
        Refusal{"all_reduce --bytes 0 --topology ring:4", "--bytes 0: want a whole number of bytes, 1 to"},
        Refusal{"all_reduce --bytes 64KiB --topology ring:4 --out-dtype bf16", "--out-dtype: --bytes asks for"},
        Refusal{"all_reduce --bytes 64KiB --topology ring:4 --gathered", "--gathered: --bytes asks for"},
        Refusal{"all_reduce --bytes 64KiB --topology torus2d:4x4x", "want numbers of devices after the colon"},
        Refusal{". --machine h200x4", ".: it is a directory"},
        Refusal{"all_reduce --bytes 8 --machine .", "machine .: it is a directory"},
        Refusal{"--list --json F", "--json: --list simulates nothing, and takes no other flag"},
        Refusal{"--show --machine h200x4 all_reduce -m 8 -n 8",
                "operator: --show simulates nothing, and takes a machine"},
        Refusal{"--show --machine h200x4 --set tile_m=8", "--set tile_m=8: no plan here has knobs"},
        Refusal{"all_reduce --bytes 8 --topology ring:4 --json F --trace F", "--trace F: is also --json"},
        Refusal{"all_reduce --bytes 8 --topology ring:4 --trace -", "--trace -: want a file"},
        Refusal{"plan.json --machine h200x4 --json plan.json", "the plan's file would be overwritten"},
        Refusal{"plan.json --machine h200x4 --json ./plan.json", "the plan's file would be overwritten"},
        Refusal{"all_reduce -m 8 -n 8 --machine m.json --json ./m.json",
                "--json ./m.json: --machine would be overwritten"},
        Refusal{"--machine h200x4 --compare r.json --json r.json", "--json r.json: --compare would be overwritten"},
        Refusal{"plan.json --machine h200x4 --bias", "--bias: a plan from a file has its own"},
        Refusal{"--machine h200x4 --compare r.json --dtype fp16", "--dtype: --compare takes everything"},
        Refusal{"gemm_all_reduce --bytes 1024 --topology ring:4",
                "'gemm_all_reduce' is no collective; known: all_reduce, reduce_scatter, all_gather, all_to_all"},
        Refusal{"all_reduce --bytes 8 --topology ring:6 --algorithm halving_doubling",
                "algorithm halving_doubling on ring:6: 6 devices exchange with each other, which is no power"},
        Refusal{"all_reduce -m 8 -n 8 --machine h200x4 --ranks 5", "4 devices, want 5 ranks"},
        Refusal{"all_reduce -m 8 -n 8 --machine h200x4 --set tile_q=5", "unknown knob 'tile_q'"},
        Refusal{"all_reduce --bytes 1024 --topology ring:4 --ranks 3", "--bytes asks for collectives of all devices"},
        Refusal{"all_reduce --bytes 1024 --topology ring:4 -m 3", "-m: --bytes asks for collectives alone"},
        Refusal{"all_reduce --bytes 1024 --topology ring:4 --set tile_m=3", "no plan here has knobs"},
        Refusal{"all_reduce -m 8 -n 8 --machine h200x4 --algorithm ring", "--algorithm: goes with --bytes"},
        Refusal{"all_reduce --machine h200x4 --compare F", "--compare takes everything from its file"},
        Refusal{"--machine h200x4 --compare /dev/null", "/dev/null: malformed JSON"}));

}  // namespace
}  // namespace tilewire::testing
