// Memory controllers, caches by block and the Tracker: hand-computed times, order of service, full queues.
// Built as the target `unit_sim`.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/sim/block_cache.hpp"
#include "backends/sim/memory_controller.hpp"
#include "backends/sim/tracker.hpp"
#include "schedules/parts.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {
namespace {

using sim::Access;
using sim::AccessKind;
using sim::ChannelController;
using sim::kNever;
using sim::Stream;
using sim::Time;
using sim::TrackerTable;

constexpr Time kNs = 1000;

/// One channel of 1 byte per ns, requests of 32 bytes, one bank group: 32 ns each on the bus.
MemoryController one_channel() {
  MemoryController controller{.channels = 1, .request_bytes = 32, .bank_groups = 1};
  controller.column_clocks = 20;
  controller.update_clocks = 40;
  controller.queue = 4;
  controller.starvation_clocks = 1000;
  return controller;
}

Access of(Stream stream, AccessKind kind, double bytes) { return {0, stream, kind, bytes}; }

/// The streams served, in order, with times.
std::vector<std::pair<int, Time>> serve_all(ChannelController& controller) {
  std::vector<std::pair<int, Time>> served;
  while (controller.next() != kNever) {
    const ChannelController::Done done = controller.step();
    if (done.owner >= 0) served.emplace_back(done.owner, done.time);
  }
  return served;
}

TEST(MemoryController, TheBusAndTheBankGroupTakeTheirTimes) {
  ChannelController controller(one_channel(), 1);
  EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::read, 64), 7, 0));
  EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::update, 64), 8, 0));
  // Reads: the bus, 32 ns each. Updates: the bank group is busy for 40 ns after each.
  EXPECT_EQ(serve_all(controller), (std::vector<std::pair<int, Time>>{{7, 64 * kNs}, {8, (64 + 40 + 40) * kNs}}));
  EXPECT_EQ(controller.busy_ns(), 4 * 32);
}

TEST(MemoryController, AtomicsReadAndWrite) {
  MemoryController config = one_channel();
  config.near_memory = NearMemory::atomics;
  ChannelController controller(config, 1);
  EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::update, 32), 1, 0));
  EXPECT_EQ(serve_all(controller), (std::vector<std::pair<int, Time>>{{1, 64 * kNs}}));
}

TEST(MemoryController, TrafficIsNotedWhenItGoesToTheBus) {
  MemoryController config = one_channel();
  config.near_memory = NearMemory::atomics;
  ChannelController controller(config, 1);
  EXPECT_TRUE(controller.traffic().empty()) << "nobody asked for it";
  controller.note_traffic(100);
  EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::read, 96), 0, 0));
  EXPECT_TRUE(controller.ask(of(Stream::communication, AccessKind::update, 32), 1, 0));
  EXPECT_FALSE(controller.ask(of(Stream::communication, AccessKind::write, 8), 2, 0));
  serve_all(controller);
  // Requests of 32 ns each: reads first, alternating with the two requests of the update, at 0, 32, ... The fifth
  // starts after
  // 100 ns; an incomplete request comes at the end.
  const std::vector<IntervalLoad> expected{
      {.compute_read_bytes = 96, .communication_read_bytes = 16, .communication_written_bytes = 16},
      {.communication_read_bytes = 16, .communication_written_bytes = 16 + 8}};
  EXPECT_EQ(controller.traffic(), expected);
}

TEST(MemoryController, NoByteIsLostWhereAccessesAreSmallerThanARequest) {
  ChannelController controller(one_channel(), 1);
  int served = 0;
  for (int i = 0; i < 64; ++i) served += controller.ask(of(Stream::compute, AccessKind::read, 8), i, 0) ? 1 : 0;
  EXPECT_EQ(served, 64 * 8 / 32);
  EXPECT_EQ(serve_all(controller).back().second, 64 * 8 * kNs);
}

std::vector<int> order_of(Arbitration arbitration) {
  MemoryController config = one_channel();
  config.arbitration = arbitration;
  ChannelController controller(config, 1);
  // A queue of four holds the first requests; then both streams have more.
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::read, 32), i, 0));
  for (int i = 10; i < 14; ++i) EXPECT_TRUE(controller.ask(of(Stream::communication, AccessKind::read, 32), i, 0));
  std::vector<int> order;
  for (const auto& [owner, time] : serve_all(controller)) order.push_back(owner);
  return order;
}

TEST(MemoryController, ArbitrationSaysWhoGoesFirst) {
  EXPECT_EQ(order_of(Arbitration::round_robin), (std::vector<int>{0, 1, 2, 3, 10, 4, 11, 5, 12, 13}));
  EXPECT_EQ(order_of(Arbitration::compute_first), (std::vector<int>{0, 1, 2, 3, 4, 5, 10, 11, 12, 13}));
}

/// The order of service after a kernel has left some requests in the queue, communication has sent requests, and the
/// kernel sends more.
std::vector<int> order_with(const std::vector<int>& thresholds, bool drained) {
  MemoryController config = one_channel();
  config.arbitration = Arbitration::communication_aware;
  config.thresholds = thresholds;
  config.starvation_clocks = 100000;
  config.queue = 8;
  ChannelController controller(config, 1);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::read, 32), i, 0));
  EXPECT_EQ(controller.step().owner, 0);
  if (drained) controller.drain();
  EXPECT_TRUE(controller.ask(of(Stream::communication, AccessKind::read, 32), 9, 32 * kNs));
  EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::read, 32), 4, 32 * kNs));
  std::vector<int> order;
  for (const auto& [owner, time] : serve_all(controller)) order.push_back(owner);
  return order;
}

TEST(MemoryController, CommunicationIsHeldBackWhileTheQueueHoldsEnough) {
  const std::vector<int> held{1, 2, 3, 4, 9};
  const std::vector<int> passed{1, 2, 3, 9, 4};
  EXPECT_EQ(order_with({1}, false), held);
  EXPECT_EQ(order_with({1}, true), passed) << "the kernel has ended";
  EXPECT_EQ(order_with({}, false), passed) << "no threshold";
  EXPECT_EQ(order_with({8}, false), passed) << "the kernel has never filled so much of the queue";
}

TEST(MemoryController, TheFullerTheQueueTheLowerTheThreshold) {
  const auto threshold_after = [](int requests) {
    MemoryController config = one_channel();
    config.arbitration = Arbitration::communication_aware;
    config.queue = 64;
    ChannelController controller(config, 1);
    // What communication asked before the kernel did says nothing about the kernel.
    EXPECT_TRUE(controller.ask(of(Stream::communication, AccessKind::write, 32), 0, 0));
    EXPECT_EQ(controller.step().owner, 0);
    EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::read, 32.0 * requests), 1, 100 * kNs));
    EXPECT_EQ(controller.threshold(), std::nullopt);
    EXPECT_TRUE(controller.ask(of(Stream::communication, AccessKind::write, 32), 2, 100 * kNs));
    return controller.threshold();
  };
  EXPECT_EQ(threshold_after(3), std::nullopt);
  EXPECT_EQ(threshold_after(5), 30);
  EXPECT_EQ(threshold_after(10), 10);
  EXPECT_EQ(threshold_after(40), 5);
}

TEST(MemoryController, NobodyStarves) {
  MemoryController config = one_channel();
  config.arbitration = Arbitration::communication_aware;
  config.starvation_clocks = 100;
  ChannelController controller(config, 1);
  EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::read, 32 * 100), 0, 0));
  EXPECT_TRUE(controller.ask(of(Stream::communication, AccessKind::read, 32 * 10), 1, 0));
  const auto served = serve_all(controller);
  ASSERT_EQ(served.size(), 2);
  EXPECT_EQ(served[0].first, 1) << "100 clocks are four requests: ten of them do not wait for all hundred";
}

/// A GEMM and its reduce-scatter or all-reduce in a ring of four.
Plan ring_plan(const char* op, const char* schedule) {
  const Problem problem{
      .op = op, .m = 1000, .n = 520, .k = 512, .dtype = DType::fp16, .reduction = Reduction::any, .arena = {"c"}};
  Config config{.schedule = schedule, .tile_m = 64, .tile_n = 64};
  config.algorithm = Algorithm::ring;
  return make_plan(problem, {.num_ranks = 4}, config);
}

TEST(TrafficOverTime, AddsUpToTheBooksOfItsDevice) {
  Machine machine = load_machine("t3_ring");
  machine.links.dims = {4};
  for (const NearMemory near : {NearMemory::op_and_store, NearMemory::atomics}) {
    machine.controller->near_memory = near;
    for (const auto& [op, schedule] : {std::pair("gemm_reduce_scatter", "track_trigger"),
                                       {"gemm_reduce_scatter", "fused"},
                                       {"gemm_all_reduce", "track_trigger"}}) {
      const Plan plan = ring_plan(op, schedule);
      const Simulation run = simulate(plan, machine, {.interval_ns = 1000, .device = 1});
      IntervalLoad sum;
      for (const IntervalLoad& each : run.traffic) {
        sum.compute_read_bytes += each.compute_read_bytes;
        sum.compute_written_bytes += each.compute_written_bytes;
        sum.communication_read_bytes += each.communication_read_bytes;
        sum.communication_written_bytes += each.communication_written_bytes;
        // The bus carries no more than its bandwidth; requests that begin in an interval may end after it.
        EXPECT_LE(each.compute_read_bytes + each.compute_written_bytes + each.communication_read_bytes +
                      each.communication_written_bytes,
                  1000 * machine.memory.bandwidth_GBps + 4 * 128 * machine.controller->channels);
      }
      const MemoryLoad& books = run.memory[1];
      constexpr double kRounding = 0.01;
      EXPECT_NEAR(sum.compute_read_bytes + sum.communication_read_bytes, static_cast<double>(books.read_bytes),
                  kRounding);
      EXPECT_NEAR(sum.compute_written_bytes + sum.communication_written_bytes, static_cast<double>(books.written_bytes),
                  kRounding);
      EXPECT_NEAR(sum.communication_read_bytes, static_cast<double>(books.communication_read_bytes), kRounding);
      EXPECT_NEAR(sum.communication_written_bytes, static_cast<double>(books.communication_written_bytes), kRounding);
      EXPECT_LE(run.traffic.size(), run.total_ns / 1000 + 1);
      Simulation without = run;
      without.traffic.clear();
      EXPECT_EQ(without, simulate(plan, machine)) << "to look changes nothing";
    }
  }
}

TEST(TrafficOverTime, RefusesWhatCannotBeNoted) {
  const Plan plan = ring_plan("gemm_reduce_scatter", "fused");
  const auto refusal = [&](const char* machine, const TrafficRequest& traffic) {
    try {
      static_cast<void>(simulate(plan, load_machine(machine), traffic));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_EQ(refusal("h200x4", {.interval_ns = 1000}), "machine h200x4: traffic over time needs a memory controller");
  EXPECT_EQ(refusal("t3_ring", {.interval_ns = 1000, .device = 8}), "machine t3_ring: no device 8, it has 8");
  EXPECT_EQ(refusal("t3_ring", {.interval_ns = -1}),
            "interval_ns -1: want 1 to 1e+12 ns, or 0 for no traffic over time");
  EXPECT_EQ(refusal("t3_ring", {.interval_ns = 1e300}),
            "interval_ns 1e+300: want 1 to 1e+12 ns, or 0 for no traffic over time");
}

TEST(BlockCache, TheOldestGoesFirst) {
  sim::BlockCache cache(100);
  const int a = cache.blocks_of({.rows = 2, .cols = 2}, 2);
  const int b = cache.blocks_of({.row = 2, .rows = 2, .cols = 2}, 2);
  EXPECT_EQ(cache.blocks_of({.rows = 2, .cols = 2}, 2), a);
  EXPECT_EQ(cache.touch(a, 40), 40);
  EXPECT_EQ(cache.touch(a + 1, 40), 40);
  EXPECT_EQ(cache.touch(a, 40), 0);
  EXPECT_EQ(cache.touch(b, 40), 40) << "pushes a + 1 out";
  EXPECT_EQ(cache.touch(a, 40), 0);
  EXPECT_EQ(cache.touch(a + 1, 40), 40);
}

TEST(Tracker, Has19KB) {
  EXPECT_EQ(bytes_of(Tracker{}), 19 * 1024) << "256 entries of 8 ways of 76 bits (T3, section 4.2.1)";
}

TEST(Tracker, TriggersWithTheLastUpdateAndForgets) {
  TrackerTable table({.entries = 4, .ways = 2});
  EXPECT_FALSE(table.update(3, 0, 1, 2));
  EXPECT_FALSE(table.update(3, 1, 1, 2));
  EXPECT_EQ(table.size(), 2);
  EXPECT_TRUE(table.update(3, 0, 1, 2));
  EXPECT_EQ(table.size(), 1);
  EXPECT_FALSE(table.update(3, 0, 1, 2)) << "counts from 0 again";
  EXPECT_TRUE(table.update(0, 0, 2, 2)) << "all at once";
}

TEST(Tracker, TellsAliasesApartAndSaysWhereItHasNoRoom) {
  TrackerTable table({.entries = 4, .ways = 2});
  EXPECT_FALSE(table.update(1, 0, 1, 3));
  EXPECT_FALSE(table.update(5, 0, 1, 3));
  EXPECT_EQ(table.without_room(), 0);
  EXPECT_FALSE(table.update(9, 0, 1, 3));
  EXPECT_EQ(table.without_room(), 1);
  EXPECT_EQ(table.most(), 3);
  EXPECT_FALSE(table.update(9, 0, 1, 3));
  EXPECT_TRUE(table.update(9, 0, 1, 3)) << "counted all the same";
  EXPECT_EQ(table.size(), 2);
}

// Two lanes of tiles on one rank: no schedule makes them, but a plan from a file may have them.
TEST(Requests, LanesOfTilesShareTheUnits) {
  Machine machine = load_machine("t3_ring");
  machine.links.dims = {1};
  const Problem problem{.op = "gemm_reduce_scatter", .m = 2048, .n = 2048, .k = 1024, .dtype = DType::fp16};
  for (const auto& [workers, parts] : {std::pair(0, 1), {80, 1}, {0, 2}, {80, 2}, {80, 8}}) {
    const Config config{.tile_m = 128, .tile_n = 128, .cluster_split_k = parts, .tile_workers = workers};
    Plan plan = gemm_only(make_plan(problem, {.num_ranks = 1}, config));
    ASSERT_EQ(plan.lanes.size(), 1);
    const Simulation one = simulate(plan, machine);
    EXPECT_LE(one.units_busy[0], 1) << workers << " workers, K in " << parts;
    Lane& first = plan.lanes.front();
    Lane second = first;
    second.name = "more";
    const auto half = first.tasks.begin() + std::ssize(first.tasks) / 2;
    second.tasks.assign(half, first.tasks.end());
    first.tasks.erase(half, first.tasks.end());
    plan.lanes.push_back(second);
    const Simulation two = simulate(plan, machine);
    EXPECT_LE(two.units_busy[0], 1) << workers << " workers, K in " << parts;
    EXPECT_GT(two.total_ns, 0.9 * one.total_ns) << workers << " workers, K in " << parts;
  }
}

}  // namespace
}  // namespace tilewire
