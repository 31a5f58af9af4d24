// Flows that share resources: hand-computed times, and properties of random ones. Built as the target `unit_sim`.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "backends/sim/flows.hpp"

namespace tilewire::sim {
namespace {

struct Begin {
  double at_ns;
  double work_ns;
  std::vector<Demand> demands;
};

/// The end of each flow, in ns. They begin in the given order.
std::vector<double> ends_of(Flows& flows, const std::vector<Begin>& begins) {
  std::vector<double> ends(begins.size());
  std::map<int, size_t> running;
  size_t next = 0;
  while (next < begins.size() || !running.empty()) {
    const Time begin = next < begins.size() ? static_cast<Time>(begins[next].at_ns * 1e3) : kNever;
    const Time now = std::min(begin, flows.next_stop());
    std::vector<int> ended;
    flows.take_ended(now, ended);
    for (const int flow : ended) {
      ends[running.at(flow)] = static_cast<double>(now) * 1e-3;
      running.erase(flow);
    }
    while (next < begins.size() && static_cast<Time>(begins[next].at_ns * 1e3) <= now) {
      running[flows.start(begins[next].work_ns, begins[next].demands, now)] = next;
      ++next;
    }
    flows.settle(now);
  }
  return ends;
}

TEST(SimFlows, AloneAFlowTakesItsWork) {
  Flows flows({1, 1});
  EXPECT_EQ(ends_of(flows, {{5, 100, {{0, 1}, {1, 0.25}}}}), (std::vector<double>{105}));
  EXPECT_DOUBLE_EQ(flows.used_ns()[0], 100);
  EXPECT_DOUBLE_EQ(flows.used_ns()[1], 25);
}

TEST(SimFlows, TwoThatWantAllOfALinkTakeTwiceAsLong) {
  Flows flows({1});
  // From 0 to 50 alone; then both at half speed: the first has 50 left, so ends at 150; the second has 50 left then.
  EXPECT_EQ(ends_of(flows, {{0, 100, {{0, 1}}}, {50, 100, {{0, 1}}}}), (std::vector<double>{150, 200}));
  EXPECT_DOUBLE_EQ(flows.most_used(), 1);
}

TEST(SimFlows, WhatOneCannotUseIsForOthers) {
  // A and B share resource 0, B and C share resource 1; C wants half of it. All rates rise together: resource 0 limits
  // A and B
  // to 0.5; then C has all that it wants.
  Flows flows({1, 1});
  const std::vector<double> ends =
      ends_of(flows, {{0, 100, {{0, 1}}}, {0, 100, {{0, 1}, {1, 1}}}, {0, 60, {{1, 0.5}}}});
  EXPECT_EQ(ends, (std::vector<double>{200, 200, 60}));
}

TEST(SimFlows, EverybodyWhoMeetsSlowsByTheSameFactor) {
  Flows flows({1});
  // 1.5 is wanted: both run at two thirds, until the shorter one has ended at 90.
  const std::vector<double> ends = ends_of(flows, {{0, 60, {{0, 1}}}, {0, 100, {{0, 0.5}}}});
  EXPECT_NEAR(ends[0], 90, 0.01);
  EXPECT_NEAR(ends[1], 130, 0.01);
}

TEST(SimFlows, SendersThatMeetLoseSomeOfTheLink) {
  Flows alone({0.5});
  EXPECT_EQ(ends_of(alone, {{0, 100, {{0, 1, 7}}}, {0, 100, {{0, 1, 7}}}}), (std::vector<double>{200, 200}));
  Flows meeting({0.5});
  EXPECT_EQ(ends_of(meeting, {{0, 100, {{0, 1, 7}}}, {0, 100, {{0, 1, 8}}}}), (std::vector<double>{400, 400}));
}

TEST(SimFlows, WhoHasNoSenderMeetsNobody) {
  Flows flows({0.5});
  EXPECT_EQ(ends_of(flows, {{0, 100, {{0, 1}}}, {0, 100, {{0, 1}}}}), (std::vector<double>{200, 200}));
}

TEST(SimFlows, AFlowOfTwoSendersMeetsItself) {
  Flows flows({0.5});
  EXPECT_EQ(ends_of(flows, {{0, 100, {{0, 0.5, 7}, {0, 0.5, 8}}}}), (std::vector<double>{200}));
}

TEST(SimFlows, WhoeverDependsOnNobodyDoesNotWaitForThoseWhoDo) {
  constexpr int kMany = 200;
  std::vector<Begin> apart;
  for (int i = 0; i < kMany; ++i) apart.push_back({0, 100, {{i, 1}}});
  apart.push_back({100, 1, {{0, 1}}});
  Flows each_alone(std::vector<double>(kMany, 1.0));
  EXPECT_EQ(ends_of(each_alone, apart).back(), 101) << "200 have begun, which share nothing";
  std::vector<Begin> joined;
  for (int i = 0; i < kMany; ++i) joined.push_back({0, 100, {{0, 1}, {1 + i, 1}}});
  joined.push_back({1, 100, {{kMany + 1, 1}}});
  joined.push_back({1, 100, {{0, 1}}});
  Flows flows(std::vector<double>(kMany + 2, 1.0));
  const std::vector<double> ends = ends_of(flows, joined);
  EXPECT_EQ(ends[kMany], 101) << "beside 200 that depend on each other";
  EXPECT_NEAR(ends[kMany + 1], 20100, 200) << "one more of them";
}

TEST(SimFlows, RandomFlowsKeepTheRules) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  for (int turn = 0; turn < 100; ++turn) {
    const int resources = 1 + below(6);
    std::vector<Begin> begins;
    double at = 0;
    std::vector<double> wanted(resources);
    for (int i = 0; i < 1 + below(60); ++i) {
      at += below(20);
      Begin begin{at, 1.0 + below(100), {}};
      for (int r = 0; r < resources; ++r) {
        if (below(2) == 0) begin.demands.push_back({r, (1 + below(8)) / 8.0});
      }
      for (const Demand& demand : begin.demands) wanted[demand.resource] += demand.share * begin.work_ns;
      begins.push_back(begin);
    }
    Flows flows(std::vector<double>(resources, 1.0));
    const std::vector<double> ends = ends_of(flows, begins);
    double last = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      EXPECT_GE(ends[i], begins[i].at_ns + begins[i].work_ns - 0.01) << "faster than alone";
      last = std::max(last, ends[i]);
    }
    EXPECT_LE(flows.most_used(), 1 + 1e-6);
    for (int r = 0; r < resources; ++r) {
      EXPECT_NEAR(flows.used_ns()[r], wanted[r], 1e-6 * wanted[r] + 1e-6) << "all of the work is done";
      EXPECT_LE(wanted[r], last + 0.01) << "nothing is used more than all the time";
    }
    Flows again(std::vector<double>(resources, 1.0));
    EXPECT_EQ(ends_of(again, begins), ends) << "the same every time";
  }
}

}  // namespace
}  // namespace tilewire::sim
