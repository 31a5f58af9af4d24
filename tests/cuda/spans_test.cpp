// Traces without a GPU: from the kernels' records to events, and from a device's answers to its clock.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "backends/cuda/runtime/device_clock.hpp"
#include "backends/cuda/runtime/trace.hpp"
#include "backends/cuda/tables/lane_tables.hpp"

namespace tilewire::cuda {
namespace {

/// Two lanes, with three and two tasks. Task 1 of the first lane waits.
Plan two_lanes() {
  Plan plan;
  plan.team.num_ranks = 1;
  plan.lanes.resize(2);
  plan.lanes[0].tasks.resize(3);
  plan.lanes[0].tasks[1].waits = {{{0, 0}, 1, Purpose::data}};
  plan.lanes[1].tasks.resize(2);
  return plan;
}

const std::array<int, 2> kLanes{4, 7};

std::vector<TraceEvent> events(const std::vector<TaskName>& names, const std::vector<TaskSpan>& spans) {
  return events_of(two_lanes(), kLanes, names, spans, 1000);
}

TEST(CudaSpans, AreEventsOfTheWholePlanOnTheHostsClock) {
  const auto got = events({{1, 0}, {0, 1}, {0, 0}}, {{5, 20, 30, 0}, {31, 40, 50, 0}, {0, 10, 30, 0}});
  const std::vector<TraceEvent> expected{
      {4, 0, 0, 1010, 1010, 1030}, {4, 0, 1, 1031, 1040, 1050}, {7, 0, 0, 1020, 1020, 1030}};
  EXPECT_EQ(got, expected) << "what is noted as taken counts for tasks with waits only";
}

TEST(CudaSpans, OfTasksThatDidNotRunAndOfDoorbellsAreLeftOut) {
  const auto got = events({{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 0, true}},
                          {{}, {60, 70, 65, 0}, {80, 90, 0, 0}, {0, 10, 20, 0}, {0, 5, 25, 0}});
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0], (TraceEvent{7, 0, 0, 1010, 1010, 1020}));
}

TEST(CudaSpans, OfATilesAddendsAreTimesOfTheTile) {
  const auto got = events({{0, 0}, {.lane = 0, .task = 0, .sum = true}}, {{5, 10, 30, 0}, {15, 20, 30, 0}});
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0], (TraceEvent{4, 0, 0, 1010, 1010, 1030, 1015, 1020}));
  EXPECT_TRUE(events({{.lane = 0, .task = 0, .sum = true}}, {{15, 20, 30, 0}}).empty()) << "the tile did not end";
}

TEST(CudaSpans, OfOneCtaThatOverlapHaveRowsOfTheirOwn) {
  // CTA 0: tasks 0 and 1 overlap, 2 begins when 0 ends. In the other lane: tasks of CTAs 0 and 1.
  const auto got = events({{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}},
                          {{0, 10, 30, 0}, {20, 25, 50, 0}, {0, 30, 60, 0}, {0, 10, 20, 1}, {0, 15, 25, 0}});
  ASSERT_EQ(got.size(), 5U);
  const auto worker_of = [&](int lane, int64_t task) {
    for (const TraceEvent& event : got) {
      if (event.lane == lane && event.task == task) return event.worker;
    }
    return -1;
  };
  EXPECT_EQ(worker_of(4, 0), 0);
  EXPECT_EQ(worker_of(4, 1), 1);
  EXPECT_EQ(worker_of(4, 2), 0);
  EXPECT_EQ(worker_of(7, 1), 0);
  EXPECT_EQ(worker_of(7, 0), 1) << "another CTA has other rows";
}

TEST(CudaSpans, RowsOfACtaComeAfterThoseOfTheOneBefore) {
  const auto got = events({{0, 0}, {0, 1}, {0, 2}}, {{0, 10, 30, 0}, {15, 20, 40, 0}, {0, 50, 60, 1}});
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0].worker, 0);
  EXPECT_EQ(got[1].worker, 1);
  EXPECT_EQ(got[2].worker, 2) << "rows 0 and 1 are the first CTA's";
}

TEST(CudaClocks, AreMatchedByTheSoonestAnswer) {
  const std::vector<ClockSample> samples{{1000, 70, 9000}, {10'000, 5'000, 12'000}, {20'000, 14'000, 25'000}};
  EXPECT_EQ(best_match(samples), (ClockMatch{6000, 1000}));
  EXPECT_EQ(best_match(std::vector<ClockSample>{}).error_ns, -1);
}

}  // namespace
}  // namespace tilewire::cuda
