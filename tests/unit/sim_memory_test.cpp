// Memory controllers, caches by block and the Tracker: hand-computed times, who goes first, what has no room.
// Built as the target `unit_sim`.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/sim/block_cache.hpp"
#include "backends/sim/memory_controller.hpp"
#include "backends/sim/tracker.hpp"

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

/// One channel of 1 byte in a ns, requests of 32 bytes, one bank group: 32 ns each on the bus.
MemoryController one_channel() {
  MemoryController controller{.channels = 1, .request_bytes = 32, .bank_groups = 1};
  controller.column_clocks = 20;
  controller.update_clocks = 40;
  controller.queue = 4;
  controller.starvation_clocks = 1000;
  return controller;
}

Access of(Stream stream, AccessKind kind, double bytes) { return {0, stream, kind, bytes}; }

/// Who was served, in order, and when.
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
  // A queue of four holds what came first; then both streams have more.
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

/// Who is served after a kernel has kept some requests in the queue, communication has asked, and the kernel asks once
/// more.
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

}  // namespace
}  // namespace tilewire
