// `tilewire report` and `tilewire demo`: the page, its content, and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.hpp"

namespace tilewire::testing {
namespace {

using nlohmann::json;

/// The list of calls in a page.
json calls_of(const std::string& page) {
  const std::string mark = "const CALLS = ";
  const size_t begin = page.find(mark) + mark.size();
  return json::parse(page.substr(begin, page.find(";\n", begin) - begin));
}

/// A trace of two ranks with one row each: some us of GEMM, and copies from `copy_at` on.
std::string trace_of(double copy_at) {
  json events = json::array();
  for (const int rank : {0, 1}) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", "x: rank 0"}}}});
    events.back()["args"]["name"] = "all_gather_gemm fused: rank " + std::to_string(rank);
    int row = 0;
    for (const char* lane : {"tiles", "gather"}) {
      events.push_back(
          {{"ph", "M"}, {"name", "thread_name"}, {"pid", rank}, {"tid", row++}, {"args", {{"name", lane}}}});
    }
  }
  for (const int rank : {0, 1}) {
    events.push_back({{"ph", "X"}, {"name", "gemm"}, {"pid", rank}, {"tid", 0}, {"ts", 0}, {"dur", 100}});
    events.push_back({{"ph", "X"}, {"name", "copy"}, {"pid", rank}, {"tid", 1}, {"ts", copy_at}, {"dur", 40}});
  }
  events.push_back({{"ph", "s"}, {"id", 1}, {"name", "s"}, {"pid", 0}, {"tid", 1}, {"ts", copy_at + 40}});
  events.push_back({{"ph", "f"}, {"id", 1}, {"name", "s"}, {"pid", 1}, {"tid", 0}, {"ts", copy_at + 40}});
  return json{{"traceEvents", events}}.dump();
}

TEST(Report, SharesOfCommunicationBehindTheGemm) {
  const std::string folder = fresh_folder();
  for (const auto& [copy_at, hidden, us] :
       {std::tuple{0.0, " 100 %", 100.0}, {80.0, " 50 %", 120.0}, {100.0, " 0 %", 140.0}}) {
    write_text(folder + "/t.json", trace_of(copy_at));
    const Outcome outcome = run_tilewire("report " + folder + "/t.json --out " + folder + "/r.html");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(hidden), std::string::npos) << outcome.out;
    const json calls = calls_of(read_text(folder + "/r.html"));
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_EQ(calls[0]["title"], "all_gather_gemm fused");
    EXPECT_EQ(calls[0]["us"], us);
    EXPECT_EQ(calls[0]["ranks"].size(), 2U);
    EXPECT_EQ(calls[0]["ranks"][1]["lanes"][1]["name"], "gather");
    ASSERT_EQ(calls[0]["arrows"].size(), 1U);
    EXPECT_EQ(calls[0]["arrows"][0][0], json({0, 1, 0}));
  }
}

TEST(Report, OfTracesOfBenchAndSim) {
  const std::string folder = fresh_folder();
  ASSERT_EQ(run_tilewire("bench gemm_reduce_scatter -m 64 -n 64 -k 64 --ranks 2 --iters 1 --schedule fused --trace " +
                         folder + "/b.json")
                .code,
            0);
  ASSERT_EQ(
      run_tilewire("sim gemm_reduce_scatter -m 4096 -n 4096 -k 4096 --machine h200x4 --trace " + folder + "/s.json")
          .code,
      0);
  const Outcome outcome = run_tilewire("report " + folder + "/b.json " + folder + "/s.json --out -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json calls = calls_of(outcome.out);
  const json simulated = json::parse(read_text(folder + "/s.json"));
  ASSERT_GE(calls.size(), 3U);
  EXPECT_EQ(calls[0]["title"], "gemm_reduce_scatter 64x64x64 fused");
  EXPECT_EQ(calls[0]["ranks"].size(), 2U);
  // Every task is there once. Tiles that start in waves have about one row for each SM.
  size_t spans = 0;
  for (size_t call = 1; call < calls.size(); ++call) {
    EXPECT_EQ(calls[call]["ranks"].size(), 4U);
    for (const json& rank : calls[call]["ranks"]) {
      for (const json& lane : rank["lanes"]) {
        spans += lane["spans"].size();
        const bool one_wave_at_a_time =
            lane["name"] == "tiles" && calls[call]["title"].get<std::string>().ends_with("sequential");
        const int most = one_wave_at_a_time ? 160 : 1000;
        EXPECT_LE(lane["workers"], most) << calls[call]["title"];
        for (const json& span : lane["spans"]) EXPECT_LT(span[0], lane["workers"]);
      }
    }
  }
  const auto is_span = [](const json& event) { return event["ph"] == "X"; };
  EXPECT_EQ(spans, std::ranges::count_if(simulated["traceEvents"], is_span));
  // The page loads nothing from elsewhere.
  EXPECT_EQ(outcome.out.find("http"), std::string::npos);
  EXPECT_EQ(outcome.out.find("src="), std::string::npos);
}

TEST(Report, RefusesWhatIsNoTrace) {
  const std::string folder = fresh_folder();
  const auto refuses = [&](const std::string& text, const std::string& why) {
    write_text(folder + "/t.json", text);
    const Outcome outcome = run_tilewire("report " + folder + "/t.json --out " + folder + "/r.html");
    EXPECT_EQ(outcome.code, 2) << text;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("internal"), std::string::npos) << outcome.err;
  };
  refuses("[1, 2]", "want a Chrome trace, an object with a list traceEvents");
  refuses(R"({"traceEvents": []})", "no tasks");
  refuses(R"({"traceEvents": [{"ph": 3}]})", "an event without a ph that fits");
  refuses(R"({"traceEvents": [{"ph": "X", "pid": 0, "tid": 0, "ts": 0, "dur": 1, "name": "gemm"}]})",
          "an event in row 0 of process 0, which has no name");
  refuses(R"({"traceEvents": [{"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "tiles"}}]})",
          "a row of process 0, which has no name");
  const std::string row = R"({"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "rank 0"}},
    {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "tiles"}})";
  const std::string span = R"("ph": "X", "pid": 0, "tid": 0, "ts": 0, "name": "gemm")";
  refuses(R"({"traceEvents": [)" + row + ", {" + span + R"(, "dur": 1, "args": {"task": 5}}]})",
          "without a task that fits");
  refuses(R"({"traceEvents": [)" + row + ", {" + span + R"(, "dur": 1e300}]})", "want less than a year");
  refuses(R"({"traceEvents": [)" + row + R"(, {"ph": "s", "pid": 0, "tid": 0, "ts": 0}]})", "without a id that fits");
  EXPECT_EQ(run_tilewire("report " + folder + "/none.json").code, 2);
  write_text(folder + "/t.json", trace_of(0));
  EXPECT_EQ(run_tilewire("report " + folder + "/t.json --out " + folder + "/t.json").code, 2);
  EXPECT_EQ(read_text(folder + "/t.json"), trace_of(0));
  EXPECT_EQ(run_tilewire("report").code, 2);
}

TEST(Report, NamesEndNoScript) {
  const std::string folder = fresh_folder();
  std::string trace = trace_of(0);
  for (size_t at; (at = trace.find("all_gather_gemm")) != std::string::npos;)
    trace.replace(at, 15, "<!--<script></script>");
  for (size_t at = trace.find("\"gather\""); at != std::string::npos;) {
    trace.replace(at, 8, "\"<b>\"");
    at = trace.find("\"gather\"", at);
  }
  write_text(folder + "/t.json", trace);
  ASSERT_EQ(run_tilewire("report " + folder + "/t.json --out " + folder + "/r.html").code, 0);
  const std::string page = read_text(folder + "/r.html");
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_EQ(calls_of(page)[0]["title"], "<!--<script></script> fused");
}

TEST(Demo, FitsAScreenAndDrawsAllCalls) {
  const std::string page = fresh_folder() + "/report.html";
  const Outcome outcome = run_tilewire("demo --out " + page);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_LE(std::ranges::count(outcome.out, '\n'), 25) << outcome.out;
  for (const char* part : {"without overlap", "with overlap", "Checked:", "Proven:", "Predicted for 4 x NVIDIA H200"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  }
  EXPECT_EQ(calls_of(read_text(page)).size(), 6U);
}

}  // namespace
}  // namespace tilewire::testing
