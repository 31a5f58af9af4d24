// Collectives of many devices against closed formulas for networks that store and forward whole messages.
// Built as the target `unit_sim`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tilewire/json.hpp"
#include "tilewire/print.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {
namespace {

struct Net {
  double bandwidth_GBps;
  double latency_ns;

  /// A message to a neighbour.
  [[nodiscard]] double hop_ns(double bytes) const { return latency_ns + bytes / bandwidth_GBps; }
};

double total_ns(const std::string& topology, Collective collective, CollectiveAlgorithm algorithm, int64_t bytes,
                const Net& net) {
  Machine machine = bare_network(topology);
  set_value(machine, "links.bandwidth_GBps", fmt::format("{}", net.bandwidth_GBps));
  set_value(machine, "links.latency_ns", fmt::format("{}", net.latency_ns));
  return simulate(collective_plan(collective, algorithm, bytes, machine), machine).total_ns;
}

void expect_within_half_a_percent(double ns, double wanted, const std::string& what) {
  EXPECT_NEAR(ns, wanted, 0.005 * wanted) << what;
}

#if defined(TILEWIRE_ASAN) || defined(TILEWIRE_TSAN)
constexpr int kMostTested = 32;  // sanitizers take ten times as long
#else
constexpr int kMostTested = 256;
#endif

TEST(SimCollectives, AllToAllAtOnceIsOneMessageLong) {
  for (const Net net : {Net{64, 500}, Net{450, 100}}) {
    for (int devices = 16; devices <= std::min(kMostTested, 128); devices *= 2) {
      for (const int64_t bytes : {int64_t{1} << 10, int64_t{1} << 20, int64_t{1} << 30}) {
        const std::string topology = fmt::format("fully_connected:{}", devices);
        const double chunk = static_cast<double>(bytes) / devices;
        const auto check = [&](Collective collective, double wanted) {
          const double ns = total_ns(topology, collective, CollectiveAlgorithm::direct, bytes, net);
          expect_within_half_a_percent(ns, wanted, fmt::format("{} {} {}", topology, to_string(collective), bytes));
        };
        check(Collective::reduce_scatter, net.hop_ns(chunk));
        check(Collective::all_reduce, 2 * net.hop_ns(chunk));
        check(Collective::all_gather, net.hop_ns(static_cast<double>(bytes)));
      }
    }
  }
}

TEST(SimCollectives, HundredsOfDevicesSendToAllAtOnce) {
  if (kMostTested < 256) GTEST_SKIP() << "too many for a sanitizer";
  const Net net{64, 500};
  const double chunk = static_cast<double>(1 << 20) / 256;
  const double ns = total_ns("fully_connected:256", Collective::all_reduce, CollectiveAlgorithm::direct, 1 << 20, net);
  expect_within_half_a_percent(ns, 2 * net.hop_ns(chunk), "fully_connected:256");
}

// A sender's link sends its messages one after another, each to another receiver. The receiver's link from the switch
// is one
// message behind.
TEST(SimCollectives, ASwitchPassesMessagesOnOneByOne) {
  for (const Net net : {Net{25, 700}, Net{450, 100}}) {
    for (const int devices : {2, 4, 8, 16}) {
      for (const int64_t bytes : {int64_t{64} << 10, int64_t{1} << 20, int64_t{1} << 30}) {
        const auto check = [&](Collective collective, double chunk, int times) {
          const std::string topology = fmt::format("switch:{}", devices);
          const double ns = total_ns(topology, collective, CollectiveAlgorithm::direct, bytes, net);
          expect_within_half_a_percent(ns, times * (devices * chunk / net.bandwidth_GBps + 2 * net.latency_ns),
                                       fmt::format("{} {} {}", topology, to_string(collective), bytes));
        };
        const double chunk = static_cast<double>(bytes) / devices;
        check(Collective::reduce_scatter, chunk, 1);
        check(Collective::all_to_all, chunk, 1);
        check(Collective::all_reduce, chunk, 2);
        check(Collective::all_gather, static_cast<double>(bytes), 1);
      }
    }
  }
}

/// Each device of a ring sends a message to every other one, the nearest first. A link serves a train of `half`
/// messages of its own device. Then it serves the train that came from the device before, without the first message,
/// which has arrived; and so on. A train starts when the train before has passed and its own first message (the second
/// one of the earlier train) is there.
double to_all_around_ns(int devices, double bytes, const Net& net) {
  const int half = devices / 2;
  const double message_ns = bytes / net.bandwidth_GBps;
  double start_ns = 0;
  for (int hop = 1; hop < half; ++hop) {
    start_ns += std::max((half - hop + 1) * message_ns, 2 * message_ns + net.latency_ns);
  }
  return start_ns + net.hop_ns(bytes);
}

TEST(SimCollectives, SentToAllAroundARingTrainsFollowEachOther) {
  for (const Net net : {Net{25, 700}, Net{450, 100}}) {
    for (const int devices : {3, 4, 8, 15, 16, 32}) {
      if (devices > kMostTested) continue;
      for (const int64_t chunk : {int64_t{64}, int64_t{2} << 10, int64_t{64} << 10, int64_t{16} << 20}) {
        const double wanted = to_all_around_ns(devices, static_cast<double>(chunk), net);
        const auto check = [&](Collective collective, int64_t bytes, double ns) {
          const std::string topology = fmt::format("ring:{}", devices);
          expect_within_half_a_percent(total_ns(topology, collective, CollectiveAlgorithm::direct, bytes, net), ns,
                                       fmt::format("{} {} {}", topology, to_string(collective), bytes));
        };
        check(Collective::reduce_scatter, chunk * devices, wanted);
        check(Collective::all_to_all, chunk * devices, wanted);
        check(Collective::all_reduce, chunk * devices, 2 * wanted);
        check(Collective::all_gather, chunk, wanted);
      }
    }
  }
}

/// Pairs at distance 1, 2, 4 ... exchange a half, a quarter ... of `bytes`; all go the same way, hop by hop.
double halving_ns(int devices, double bytes, const Net& net) {
  double ns = 0;
  for (int distance = 1; distance < devices; distance *= 2) ns += distance * net.hop_ns(bytes / (2 * distance));
  return ns;
}

TEST(SimCollectives, ATorusGathersFromItsLastDimensionBack) {
  using enum CollectiveAlgorithm;
  for (const Net net : {Net{25, 700}, Net{450, 100}}) {
    for (const auto& [rows, columns] : {std::pair(2, 4), {4, 8}, {8, 4}, {3, 5}}) {
      for (const int64_t shard : {int64_t{32}, int64_t{2} << 10, int64_t{1} << 20}) {
        const int64_t bytes = shard * rows * columns;
        const auto check = [&](Collective collective, CollectiveAlgorithm algorithm, int64_t brought, double wanted) {
          const std::string topology = fmt::format("torus2d:{}x{}", rows, columns);
          expect_within_half_a_percent(
              total_ns(topology, collective, algorithm, brought, net), wanted,
              fmt::format("{} {} {} {}", topology, to_string(collective), static_cast<int>(algorithm), shard));
        };
        const auto part = static_cast<double>(shard);
        const double at_once = to_all_around_ns(columns, part * rows, net) + to_all_around_ns(rows, part, net);
        check(Collective::reduce_scatter, direct, bytes, at_once);
        check(Collective::all_reduce, direct, bytes, 2 * at_once);
        check(Collective::all_gather, direct, shard, at_once);
        if (rows == 3) continue;
        const double halves = halving_ns(columns, part * rows * columns, net) + halving_ns(rows, part * rows, net);
        check(Collective::reduce_scatter, halving_doubling, bytes, halves);
        check(Collective::all_reduce, halving_doubling, bytes, 2 * halves);
        check(Collective::all_gather, halving_doubling, shard, halves);
      }
    }
  }
}

TEST(SimCollectives, AroundALongRingEachStepIsAMessage) {
  const Net net{150, 500};
  for (const int devices : {96, 128, 256}) {
    if (devices > kMostTested) continue;
    const std::string topology = fmt::format("ring:{}", devices);
    for (const int64_t chunk : {int64_t{16}, int64_t{8} << 10, int64_t{4} << 20}) {
      const double steps_ns = (devices - 1) * net.hop_ns(static_cast<double>(chunk));
      const auto check = [&](Collective collective, int64_t bytes, double wanted) {
        const double ns = total_ns(topology, collective, CollectiveAlgorithm::ring, bytes, net);
        expect_within_half_a_percent(ns, wanted, fmt::format("{} {} {}", topology, to_string(collective), bytes));
      };
      check(Collective::reduce_scatter, chunk * devices, steps_ns);
      check(Collective::all_reduce, chunk * devices, 2 * steps_ns);
      check(Collective::all_gather, chunk, steps_ns);
    }
  }
}

TEST(SimCollectives, WhatDoesNotDivideIsPadded) {
  const Net net{1, 10};
  using enum CollectiveAlgorithm;
  EXPECT_NEAR(total_ns("ring:6", Collective::all_reduce, ring, 14, net), 2 * 5 * net.hop_ns(4), 0.1) << "3 x 2 bytes";
  EXPECT_NEAR(total_ns("ring:6", Collective::all_gather, ring, 13, net), 5 * net.hop_ns(14), 0.1);
  EXPECT_NEAR(total_ns("fully_connected:8", Collective::reduce_scatter, direct, 1000, net), net.hop_ns(126), 0.1);
  EXPECT_NEAR(total_ns("fully_connected:3", Collective::all_to_all, direct, 1, net), net.hop_ns(2), 0.1);
  EXPECT_NEAR(total_ns("fully_connected:4", Collective::reduce_scatter, halving_doubling, 1001, net),
              net.hop_ns(502) + net.hop_ns(252), 0.1);
  for (const char* topology : {"ring:3", "ring:5", "ring:12", "ring:96"}) {
    const int devices = std::stoi(std::string(topology).substr(5));
    const double chunk = static_cast<double>(1 << 20) / devices;
    expect_within_half_a_percent(total_ns(topology, Collective::all_reduce, ring, 1 << 20, {150, 500}),
                                 2 * (devices - 1) * Net{150, 500}.hop_ns(chunk), topology);
  }
  EXPECT_GT(total_ns("torus2d:3x5", Collective::all_reduce, ring, 1 << 20, net), 0);
}

TEST(SimCollectives, ATorusIsOneRingAfterTheOther) {
  if (kMostTested < 128) GTEST_SKIP() << "too many for a sanitizer";
  for (const Net net : {Net{25, 700}, Net{450, 100}}) {
    for (const int64_t bytes : {int64_t{64} << 10, int64_t{1} << 20, int64_t{1} << 30}) {
      const double wanted =
          15 * net.hop_ns(static_cast<double>(bytes) / 16) + 7 * net.hop_ns(static_cast<double>(bytes) / 128);
      const auto check = [&](Collective collective, double ns) {
        expect_within_half_a_percent(total_ns("torus2d:8x16", collective, CollectiveAlgorithm::ring, bytes, net), ns,
                                     fmt::format("{} {}", to_string(collective), bytes));
      };
      check(Collective::reduce_scatter, wanted);
      check(Collective::all_reduce, 2 * wanted);
    }
  }
}

}  // namespace
}  // namespace tilewire
