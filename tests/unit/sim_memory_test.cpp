// Memory controllers, the Tracker and T3's plans: hand-computed times, who goes first, what the paper walks through.
// Built as the target `unit_sim`.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/sim/block_cache.hpp"
#include "backends/sim/memory_controller.hpp"
#include "backends/sim/tracker.hpp"
#include "schedules/output_map.hpp"
#include "schedules/parts.hpp"
#include "sim_machines.hpp"
#include "tilewire/check.hpp"
#include "tilewire/schedule.hpp"
#include "tilewire/sim.hpp"
#include "tilewire/t3.hpp"

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

std::vector<int> order_of(Arbitration arbitration, std::vector<int> thresholds = {}) {
  MemoryController config = one_channel();
  config.arbitration = arbitration;
  config.thresholds = std::move(thresholds);
  ChannelController controller(config, 1);
  // A queue of four holds what came first; then both streams have more.
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::read, 32), i, 0));
  for (int i = 10; i < 14; ++i) EXPECT_TRUE(controller.ask(of(Stream::communication, AccessKind::read, 32), i, 0));
  std::vector<int> order;
  for (const auto& [owner, time] : serve_all(controller)) order.push_back(owner);
  return order;
}

TEST(MemoryController, ArbitrationSaysWhoGoesFirst) {
  // The first request found the queue empty, and was passed on before others asked.
  EXPECT_EQ(order_of(Arbitration::round_robin), (std::vector<int>{0, 10, 1, 11, 2, 12, 3, 13, 4, 5}));
  EXPECT_EQ(order_of(Arbitration::compute_first), (std::vector<int>{0, 1, 2, 3, 4, 5, 10, 11, 12, 13}));
}

TEST(MemoryController, CommunicationIsHeldBackWhileTheQueueIsFull) {
  MemoryController config = one_channel();
  config.arbitration = Arbitration::communication_aware;
  config.thresholds = {1};
  config.starvation_clocks = 100000;
  config.queue = 8;
  ChannelController controller(config, 1);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(controller.ask(of(Stream::compute, AccessKind::read, 32), i, 0));
  EXPECT_EQ(controller.step().owner, 0);
  EXPECT_TRUE(controller.ask(of(Stream::communication, AccessKind::read, 64), 9, 32 * kNs));
  for (int i = 1; i < 8; ++i) EXPECT_EQ(controller.step().owner, i);
  EXPECT_EQ(controller.threshold(), 1);
  EXPECT_EQ(controller.step().owner, -1);
  EXPECT_EQ(controller.step().owner, 9);
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

/// T3's walk-through: four ranks, one tile in each of four chunks.
Problem fixture() {
  return {.op = "gemm_reduce_scatter",
          .m = 8,
          .n = 2,
          .k = 8,
          .dtype = DType::fp16,
          .reduction = Reduction::any,
          .arena = {"c"}};
}

Config fixture_config() {
  Config config{.schedule = "track_trigger", .tile_m = 2, .tile_n = 2};
  config.algorithm = Algorithm::ring;
  return config;
}

std::vector<const Task*> tasks_of(const Plan& plan, int rank, TaskKind kind) {
  std::vector<const Task*> tasks;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank == rank && task.kind == kind) tasks.push_back(&task);
    }
  }
  return tasks;
}

// T43: GPU 0 stores stage 1 at its neighbour, sends stages 2 and 3 by DMA after two updates, keeps stage 4. Here rank
// r sends to r + 1 (the paper's GPUs to the one before), so chunks are counted the other way round.
TEST(TrackTrigger, DoesWhatFigures7And11Show) {
  const Plan plan = make_plan(fixture(), {.num_ranks = 4}, fixture_config());
  const CheckResult proof = check(plan);
  EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
  for (int rank = 0; rank < 4; ++rank) {
    const int next = (rank + 1) % 4;
    const auto tiles = tasks_of(plan, rank, TaskKind::compute);
    ASSERT_EQ(tiles.size(), 4);
    for (int stage = 0; stage < 4; ++stage) {
      const Write& write = tiles[stage]->writes.at(0);
      EXPECT_EQ(write.mode, WriteMode::accumulate);
      EXPECT_EQ(write.to.rank, stage == 0 ? next : rank) << "remote_update first, then its own memory";
      const bool in_output = stage == 3;
      const int chunk = (rank + 3 - stage) % 4;
      EXPECT_EQ(write.to.row, in_output ? 0 : 2 * chunk) << "staggered: rank " << rank << " stage " << stage;
    }
    const auto copies = tasks_of(plan, rank, TaskKind::copy);
    ASSERT_EQ(copies.size(), 2) << "N - 2 steps of dma_update";
    for (int step = 0; step < 2; ++step) {
      const Task& dma = *copies[step];
      EXPECT_EQ(dma.reads[0].row, 2 * ((rank + 2 - step) % 4));
      EXPECT_EQ(dma.writes[0].to.rank, next);
      EXPECT_EQ(dma.writes[0].mode, WriteMode::accumulate);
      const auto trigger = std::ranges::find(dma.waits, 2, &Wait::at_least);
      ASSERT_NE(trigger, dma.waits.end()) << "two updates for each element";
      EXPECT_EQ(trigger->signal.rank, rank);
    }
  }
}

TEST(TrackTrigger, SplitKCountsEachPart) {
  Config config = fixture_config();
  config.split_k = 2;
  const Plan plan = make_plan(fixture(), {.num_ranks = 4}, config);
  EXPECT_TRUE(check(plan).ok());
  const auto copies = tasks_of(plan, 0, TaskKind::copy);
  // Two parts of the neighbour's stores and two of its own; then one DMA and two of its own.
  EXPECT_EQ(copies[0]->waits.back().at_least, 4);
  EXPECT_EQ(copies[1]->waits.back().at_least, 3);
}

TEST(TrackTrigger, DirectHasNoCopies) {
  Config config = fixture_config();
  config.algorithm = Algorithm::direct;
  const Plan plan = make_plan(fixture(), {.num_ranks = 4}, config);
  EXPECT_TRUE(check(plan).ok());
  EXPECT_TRUE(tasks_of(plan, 0, TaskKind::copy).empty());
  for (const Task* tile : tasks_of(plan, 1, TaskKind::compute)) {
    const Write& write = tile->writes.at(0);
    EXPECT_EQ(write.to.row, 0) << "each slice goes to its owner";
  }
}

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(OutputMap, RefusesWhatWouldNeverTrigger) {
  OutputMap map = ring_reduce_scatter(4);
  EXPECT_EQ(map.updates_seen(0, 3), 0) << "rank 0 stores chunk 3 elsewhere and nobody sends it there";
  EXPECT_EQ(map.updates_seen(0, 2), 2);
  map.dma_map(0, 2, 1, 3);
  EXPECT_EQ(
      message_of([&] { static_cast<void>(make_mapped_plan(fixture(), {.num_ranks = 4}, fixture_config(), map)); }),
      "dma_map of chunk 2 on rank 0: waits for 3 updates per element, 2 come");
  EXPECT_EQ(message_of([&] { map.remote_map(1, 0, 1); }), "remote_map of chunk 0: rank 1 is no remote rank of itself");
  EXPECT_EQ(message_of([&] { map.dma_map(1, 0, 2, 0); }),
            "dma_map of chunk 0: updates_per_element = 0: want at least 1");
  EXPECT_EQ(message_of([&] { map.remote_map(4, 0, 1); }), "map of chunk 0 of rank 4 to rank 1: there are 4 ranks");
}

/// A ring of round numbers: memory that moves 32 bytes in a ns, links of 1.
Machine small_ring(int devices) {
  Machine machine = sim_machines::round_numbers(devices);
  machine.links.topology = Topology::ring;
  machine.memory = {.bandwidth_GBps = 32, .cache_MiB = 1};
  machine.copy.engines = 4;
  machine.controller = MemoryController{.channels = 1, .request_bytes = 32};
  machine.controller->latency_ns = 5;
  machine.controller->step_k = 8;
  machine.tracker = Tracker{};
  return machine;
}

// One rank, one tile of 16 x 16 x 8 in fp16: A and B are 256 bytes each, 16 requests of 1 ns; 5 ns of latency; 4096
// ns of work; then the result, 512 bytes, 16 requests.
TEST(Requests, OneTileToTheNanosecond) {
  Machine machine = small_ring(1);
  machine.links.topology = Topology::fully_connected;
  const Problem problem{.op = "gemm_reduce_scatter", .m = 16, .n = 16, .k = 8, .dtype = DType::fp16};
  Plan plan = gemm_only(make_plan(problem, {.num_ranks = 1}, {.tile_m = 16, .tile_n = 16}));
  machine.controller->column_clocks = 1;
  machine.controller->update_clocks = 1;
  EXPECT_EQ(simulate(plan, machine).total_ns, 16 + 5 + 4096 + 16);
  machine.controller->step_k = 4;  // two steps: the second one's data come during the first one's work
  EXPECT_EQ(simulate(plan, machine).total_ns, 8 + 5 + 4096 + 16);
}

// QT30: in the steady state the baseline reads two copies and writes one remotely, T3 reads one.
TEST(Requests, ASteadyStepReadsOnceInsteadOfTwice) {
  const auto rs_of = [](int tp) {
    const SubLayer layer{.tp = tp, .m = 256 * tp, .n = 256, .k = 256};
    const SubLayerTimes times = simulate_sub_layer(layer, load_machine("t3_ring"));
    const int64_t chunk = 256 * 256 * 2;
    EXPECT_EQ(times.sequential.rs_reads, (2 * tp - 1) * chunk);
    EXPECT_EQ(times.sequential.rs_writes, tp * chunk);
    EXPECT_EQ(times.t3.rs_reads, (tp - 2) * chunk);
    EXPECT_EQ(times.t3.rs_writes, (tp - 1) * chunk);
    EXPECT_EQ(times.t3.gemm_writes, (tp - 1) * chunk) << "the first stage's go to the neighbour";
    return times;
  };
  const SubLayerTimes four = rs_of(4);
  const SubLayerTimes five = rs_of(5);
  const int64_t step = 256 * 256 * 2;
  EXPECT_EQ(five.sequential.rs_reads - four.sequential.rs_reads, 2 * step);
  EXPECT_EQ(five.t3.rs_reads - four.t3.rs_reads, step);
}

TEST(Requests, BooksAreKeptAndTheSameAgain) {
  const Machine machine = load_machine("t3_ring");
  Machine ring = machine;
  ring.links.dims = {4};
  const Problem problem{
      .op = "gemm_reduce_scatter", .m = 1024, .n = 512, .k = 512, .dtype = DType::fp16, .reduction = Reduction::any};
  Config config{.schedule = "track_trigger", .tile_m = 64, .tile_n = 64};
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct}) {
    config.algorithm = algorithm;
    const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
    const Simulation simulation = simulate(plan, ring);
    EXPECT_EQ(simulation, simulate(plan, ring));
    int64_t carried = 0;
    for (const LinkLoad& link : simulation.links) {
      carried += link.bytes;
      EXPECT_LE(link.busy, 1);
    }
    int64_t sent = 0;
    for (const LinkTraffic& link : traffic_of(plan)) {
      const int hops = std::min((link.to - link.from + 4) % 4, (link.from - link.to + 4) % 4);
      sent += link.bytes * hops;
    }
    EXPECT_EQ(carried, sent);
    for (const MemoryLoad& memory : simulation.memory) EXPECT_LE(memory.busy, 1);
    EXPECT_EQ(simulation.not_tracked, 0);
    EXPECT_GT(simulation.most_tracked, 0);
  }
}

TEST(Requests, MoreMemoryIsNeverSlowerForAGemmAlone) {
  Machine machine = load_machine("t3_ring");
  machine.links.dims = {2};
  const Problem problem{
      .op = "gemm_reduce_scatter", .m = 1024, .n = 1024, .k = 1024, .dtype = DType::fp16, .reduction = Reduction::any};
  const Plan plan = gemm_only(make_plan(problem, {.num_ranks = 2}, {.tile_m = 128, .tile_n = 128}));
  double before = 1e30;
  for (const double bandwidth : {50.0, 100.0, 200.0, 1000.0}) {
    machine.memory.bandwidth_GBps = bandwidth;
    const double total = simulate(plan, machine).total_ns;
    EXPECT_LE(total, before);
    before = total;
  }
}

TEST(T3, AMachineWithoutAControllerIsRefused) {
  EXPECT_EQ(message_of([] { static_cast<void>(simulate_sub_layer({.tp = 2}, load_machine("h200x4"))); }),
            "machine h200x4: T3's study needs a ring with a memory controller");
}

}  // namespace
}  // namespace tilewire
