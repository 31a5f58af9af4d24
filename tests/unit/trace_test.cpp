// Traces: the Chrome JSON is parsed again and compared with its events.
#include "tilewire/trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tilewire/error.hpp"

namespace tilewire {
namespace {

using nlohmann::json;

/// Rank 0: a pool of two workers copies two halves and posts each to rank 1, whose reduce lane waits for both.
Plan two_rank_plan() {
  Plan plan;
  plan.team.num_ranks = 2;
  plan.buffers = {{.name = "x", .rows = 4, .cols = 8, .scope = Scope::symmetric},
                  {.name = "y", .rows = 4, .cols = 8, .scope = Scope::output}};
  plan.signals = {{.name = "arrived", .first = 0, .count = 2}};
  const auto part = [](int rank, int buffer, int64_t row, int64_t rows) {
    return Region{.rank = rank, .buffer = buffer, .row = row, .rows = rows, .col = 0, .cols = 8};
  };
  Lane send{.rank = 0, .engine = Engine::tiles, .name = "tiles"};
  for (int half = 0; half < 2; ++half) {
    Task task{.kind = TaskKind::copy};
    task.reads = {part(0, 0, 2 * half, 2)};
    task.writes = {{.to = part(1, 0, 2 * half, 2)}};
    task.posts = {{.signal = {.rank = 1, .index = 1}}};
    send.tasks.push_back(task);
  }
  Lane sum{.rank = 1, .engine = Engine::reduce, .name = "reduce"};
  Task task{.kind = TaskKind::reduce};
  task.reads = {part(1, 0, 0, 4)};
  task.writes = {{.to = part(1, 1, 0, 4)}};
  task.waits = {{.signal = {.rank = 1, .index = 1}, .at_least = 2}};
  sum.tasks.push_back(task);
  plan.lanes = {send, sum};
  return plan;
}

/// Task 1 ends after task 0, so it completes the wait.
Trace two_rank_trace() {
  return {{{.lane = 0, .worker = 0, .task = 0, .taken_ns = 1000, .start_ns = 1000, .end_ns = 3000},
           {.lane = 0, .worker = 1, .task = 1, .taken_ns = 1500, .start_ns = 1500, .end_ns = 5000},
           {.lane = 1, .worker = 0, .task = 0, .taken_ns = 2000, .start_ns = 5100, .end_ns = 6000}}};
}

std::vector<json> events(const Plan& plan, const Trace& trace) {
  std::ostringstream out;
  write_chrome_trace(out, plan, trace);
  return json::parse(out.str()).at("traceEvents").get<std::vector<json>>();
}

std::vector<json> select(const std::vector<json>& all, const std::string& phase, const std::string& name = "") {
  std::vector<json> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found), [&](const json& event) {
    return event.at("ph") == phase && (name.empty() || event.at("name") == name);
  });
  return found;
}

TEST(Trace, NamesOneProcessPerRankAndOneRowPerWorker) {
  const auto all = events(two_rank_plan(), two_rank_trace());
  const auto processes = select(all, "M", "process_name");
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes[0].at("args").at("name"), "rank 0");
  EXPECT_EQ(processes[1].at("args").at("name"), "rank 1");
  const auto threads = select(all, "M", "thread_name");
  ASSERT_EQ(threads.size(), 3U);
  EXPECT_EQ(threads[0].at("args").at("name"), "tiles 0");
  EXPECT_EQ(threads[1].at("args").at("name"), "tiles 1");
  EXPECT_EQ(threads[2].at("args").at("name"), "reduce");
  EXPECT_NE(threads[0].at("tid"), threads[1].at("tid"));
  EXPECT_EQ(threads[2].at("pid"), 1);
}

TEST(Trace, SlicesCarryTheTaskAndStartAtZero) {
  const auto all = events(two_rank_plan(), two_rank_trace());
  const auto copies = select(all, "X", "copy");
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_DOUBLE_EQ(copies[0].at("ts"), 0);
  EXPECT_DOUBLE_EQ(copies[0].at("dur"), 2);
  EXPECT_EQ(copies[1].at("args").at("kind"), "copy");
  EXPECT_EQ(copies[1].at("args").at("task"), task_name(two_rank_plan(), 0, 1));
  EXPECT_EQ(copies[1].at("args").at("reads").size(), 1U);
  EXPECT_EQ(copies[1].at("args").at("writes").size(), 1U);
  EXPECT_EQ(select(all, "X").size(), 4U);
}

TEST(Trace, WaitingIsASliceOfItsOwn) {
  const auto waits = select(events(two_rank_plan(), two_rank_trace()), "X", "waiting");
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits[0].at("pid"), 1);
  EXPECT_DOUBLE_EQ(waits[0].at("ts"), 1);
  EXPECT_DOUBLE_EQ(waits[0].at("dur"), 3.1);
  EXPECT_NE(waits[0].at("args").dump().find("arrived[1] on rank 1 >= 2"), std::string::npos);
}

/// A reader of LL data has no wait in the plan, but still waits for the writers.
TEST(Trace, LlDataIsWaitedForToo) {
  Plan plan = two_rank_plan();
  plan.buffers[0].ll = true;
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) task.waits.clear(), task.posts.clear();
  }
  const auto all = events(plan, two_rank_trace());
  const auto waits = select(all, "X", "waiting");
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_NE(waits[0].at("args").dump().find("LL data on rank 1 >= 2"), std::string::npos) << waits[0];
  EXPECT_EQ(select(all, "s").size(), 1U);
}

TEST(Trace, AnArrowLeadsFromTheLastPostNeeded) {
  Plan plan = two_rank_plan();
  auto all = events(plan, two_rank_trace());
  auto tails = select(all, "s");
  auto heads = select(all, "f");
  ASSERT_EQ(tails.size(), 1U);
  ASSERT_EQ(heads.size(), 1U);
  EXPECT_EQ(tails[0].at("id"), heads[0].at("id"));
  EXPECT_EQ(tails[0].at("tid"), 1) << "worker 1 ended last";
  EXPECT_DOUBLE_EQ(tails[0].at("ts"), 3.999) << "inside the slice of its task";
  EXPECT_EQ(heads[0].at("pid"), 1);
  EXPECT_DOUBLE_EQ(heads[0].at("ts"), 4.1);
  EXPECT_EQ(heads[0].at("bp"), "e");

  plan.lanes[1].tasks[0].waits[0].at_least = 1;
  tails = select(events(plan, two_rank_trace()), "s");
  ASSERT_EQ(tails.size(), 1U);
  EXPECT_EQ(tails[0].at("tid"), 0) << "the first post is enough for one";

  plan.lanes[1].tasks[0].waits[0].at_least = 3;
  EXPECT_TRUE(select(events(plan, two_rank_trace()), "s").empty()) << "no post of this call reaches three";
}

TEST(Trace, AnArrowNeverPointsBackInTime) {
  Trace trace = two_rank_trace();
  trace.events[1].end_ns = 5400;  // recorded after the waiting rank had seen the post
  const auto all = events(two_rank_plan(), trace);
  EXPECT_LE(select(all, "s").at(0).at("ts").get<double>(), select(all, "f").at(0).at("ts").get<double>());
}

TEST(Trace, AnEmptyTraceIsStillJson) {
  const auto all = events(two_rank_plan(), {});
  EXPECT_EQ(select(all, "M", "process_name").size(), 2U);
  EXPECT_TRUE(select(all, "X").empty());
}

TEST(Trace, SummaryAddsUpWorkers) {
  const auto lanes = summarize(two_rank_plan(), two_rank_trace());
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_EQ(lanes[0], (LaneSummary{.lane = 0, .busy_ns = 5500, .waiting_ns = 0, .span_ns = 4000}));
  EXPECT_EQ(lanes[1], (LaneSummary{.lane = 1, .busy_ns = 900, .waiting_ns = 3100, .span_ns = 4000}));
}

TEST(Trace, RefusesEventsOfAnotherPlan) {
  Trace trace = two_rank_trace();
  trace.events[0].lane = 7;
  std::ostringstream out;
  EXPECT_THROW(static_cast<void>(summarize(two_rank_plan(), trace)), Error);
  EXPECT_THROW(write_chrome_trace(out, two_rank_plan(), trace), Error);
}

TEST(Trace, OverlapIsFluxEquation) {
  EXPECT_DOUBLE_EQ(overlap_efficiency(100, 100, 150), 1);
  EXPECT_DOUBLE_EQ(overlap_efficiency(150, 100, 150), 0);
  EXPECT_DOUBLE_EQ(overlap_efficiency(125, 100, 150), 0.5);
  EXPECT_LT(overlap_efficiency(160, 100, 150), 0);
  EXPECT_TRUE(std::isnan(overlap_efficiency(100, 100, 100)));
}

}  // namespace
}  // namespace tilewire
