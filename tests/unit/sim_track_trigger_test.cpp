// T3's plans on machines with memory controllers: the paper's walk-through, hand-computed times, and consistent counts.
// Built as the target `unit_sim`.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/mapped_plan.hpp"
#include "schedules/parts.hpp"
#include "sim_machines.hpp"
#include "tilewire/check.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {
namespace {

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

// T43: GPU 0 stores the results of stage 1 at its neighbour, sends those of stages 2 and 3 by DMA after two updates,
// and keeps those of stage 4. Here rank r sends to r + 1 (the paper's GPUs to the one before), so the order of chunks
// is reversed.
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

Problem all_reduce_fixture() {
  Problem problem = fixture();
  problem.op = "gemm_all_reduce";
  return problem;
}

// T05: ring all-reduce = the reduce-scatter above, then N - 1 steps that store complete chunks and send them on.
TEST(TrackTrigger, AnAllReducePassesOnWhatIsComplete) {
  const Plan plan = make_plan(all_reduce_fixture(), {.num_ranks = 4}, fixture_config());
  const CheckResult proof = check(plan);
  ASSERT_TRUE(proof.ok()) << proof.violations[0].text;
  EXPECT_EQ(proof.total_bytes, proof.least_bytes);
  for (int rank = 0; rank < 4; ++rank) {
    const int next = (rank + 1) % 4;
    const auto copies = tasks_of(plan, rank, TaskKind::copy);
    ASSERT_EQ(copies.size(), 2 + 3) << "N - 2 steps of dma_update, N - 1 of dma_store";
    for (int step = 0; step < 3; ++step) {
      const Task& dma = *copies[2 + step];
      const int chunk = (rank + 4 - step) % 4;
      EXPECT_EQ(dma.reads[0].row, 2 * chunk) << "its own, then what rank - 1 has sent";
      EXPECT_EQ(dma.writes[0].mode, WriteMode::store);
      EXPECT_EQ(dma.writes[0].to.rank, next);
      EXPECT_EQ(dma.writes[0].to.row, 2 * chunk) << "in the output";
      EXPECT_EQ(dma.waits.back().signal.rank, rank);
      EXPECT_EQ(dma.waits.back().at_least, step == 0 ? 2 : 1) << "two updates, or one store";
    }
  }
}

TEST(TrackTrigger, ADirectAllReduceSendsFromTheOwner) {
  Config config = fixture_config();
  config.algorithm = Algorithm::direct;
  const Plan plan = make_plan(all_reduce_fixture(), {.num_ranks = 4}, config);
  const CheckResult proof = check(plan);
  ASSERT_TRUE(proof.ok()) << proof.violations[0].text;
  EXPECT_EQ(proof.total_bytes, proof.least_bytes);
  const auto copies = tasks_of(plan, 1, TaskKind::copy);
  ASSERT_EQ(copies.size(), 3);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(copies[step]->reads[0].row, 2);
    EXPECT_EQ(copies[step]->writes[0].to.rank, (2 + step) % 4);
    EXPECT_EQ(copies[step]->waits.back().at_least, 4) << "an update of every rank";
  }
}

// Two ranks in a ring: each adds one tile at the other, and stores the sum of the other one back. The ready signal
// arrives
// after 10 ns, tiles of 4 x 2 with depth 4 take 2 * 4 * 2 * 4 ns, and a transfer of 16 bytes takes 16 + 10 ns.
TEST(TrackTrigger, AnAllReduceToTheNanosecond) {
  Config config = fixture_config();
  config.tile_m = 4;
  config.tile_workers = 2;
  const Plan plan = make_plan(all_reduce_fixture(), {.num_ranks = 2}, config);
  Machine machine = sim_machines::round_numbers(2);
  machine.compute.units = 2;
  EXPECT_NEAR(simulate(plan, machine).total_ns, 10 + 64 + 2 * (16 + 10), 0.1);
}

TEST(TrackTrigger, WorkspaceIsNoLargerThanNeeded) {
  Config config = fixture_config();
  Problem problem = fixture();
  const auto sum_rows = [&] {
    const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
    const auto sum = std::ranges::find(plan.buffers, "sum", &Buffer::name);
    return sum == plan.buffers.end() ? 0 : sum->rows;
  };
  EXPECT_EQ(sum_rows(), 8) << "a ring's sums come by";
  config.algorithm = Algorithm::direct;
  EXPECT_EQ(sum_rows(), 0) << "sums are completed in the output";
  problem.arena.clear();
  EXPECT_EQ(sum_rows(), 2) << "a rank's own rows";
}

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TrackTrigger, RefusesKnobsByName) {
  const auto refusal = [](auto set) {
    Config config = fixture_config();
    set(config);
    return message_of([&] { static_cast<void>(make_plan(all_reduce_fixture(), {.num_ranks = 4}, config)); });
  };
  const std::string cannot = "schedule track_trigger cannot do gemm_all_reduce: ";
  EXPECT_EQ(refusal([](Config& c) { c.algorithm = Algorithm::one_shot; }),
            cannot + "knob algorithm = one_shot: for gemm_all_reduce want one of: direct, ring, two_phase");
  EXPECT_EQ(refusal([](Config& c) { c.pacing = Pacing::lockstep; }),
            cannot + "knob pacing = lockstep has no meaning for gemm_all_reduce (tilewire info --knobs)");
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
  EXPECT_EQ(message_of([&] { map.drop(0, 4); }), "map of chunk 4 of rank 0: there are 4 chunks");
  const auto refusal = [&](const OutputMap& sums) {
    return message_of(
        [&] { static_cast<void>(make_mapped_plan(fixture(), {.num_ranks = 4}, fixture_config(), sums)); });
  };
  map = direct_reduce_scatter(4);
  map.drop(0, 0);
  EXPECT_EQ(refusal(map), "the part of rank 0 in the sum of chunk 0 goes nowhere");
  map = direct_reduce_scatter(4);
  map.remote_map(0, 1, 2, WriteMode::store);
  EXPECT_EQ(refusal(map), "remote_map of chunk 1 of rank 0 stores what is part of a sum: want accumulate");
  map = ring_all_reduce(4);
  EXPECT_EQ(map.stores_seen(0, 0), 0) << "its owner completes it";
  EXPECT_EQ(map.stores_seen(1, 0), 1);
  map.dma_map(2, 0, 1, 1, WriteMode::store);
  EXPECT_EQ(message_of([&] { map.validate(); }), "chunk 0 is stored on rank 1 by 2 ranks: want at most 1");
}

/// A ring with round numbers: memory of 32 bytes per ns, links of 1.
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

// One rank, one tile of 16 x 16 x 8 in fp16: A and B are 256 bytes each, 16 requests of 1 ns; 5 ns of latency; 4096 ns
// of
// compute; then the result, 512 bytes, 16 requests.
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

// Two ranks, two blocks of 32 KiB: the first is read (1024 ns and 5 of latency), then sent (32768 ns) while the second
// is
// read; the second is sent while the first is written; then the latency of the link and the write of the second.
TEST(Requests, TwoBlocksOfACopyToTheNanosecond) {
  Machine machine = small_ring(2);
  machine.links.topology = Topology::fully_connected;
  machine.controller->column_clocks = 1;
  const Plan plan = collective_plan(Collective::all_gather, CollectiveAlgorithm::direct, 64 << 10, machine);
  EXPECT_NEAR(simulate(plan, machine).total_ns, 1024 + 5 + 2 * 32768 + 10 + 1024, 1);
}

TEST(Requests, CopiesAreAsFastAsLinksWhereMemoryIsIdle) {
  for (const double bandwidth : {75.0, 150.0, 300.0}) {
    Machine machine = load_machine("t3_ring");
    machine.links.bandwidth_GBps = bandwidth;
    const Plan plan = collective_plan(Collective::all_gather, CollectiveAlgorithm::ring, 8 << 20, machine);
    const double requests = simulate(plan, machine).total_ns;
    machine.controller.reset();
    EXPECT_NEAR(requests / simulate(plan, machine).total_ns, 1, 0.05) << bandwidth;
  }
}

TEST(Requests, MoreWorkersThanUnitsAreNotFaster) {
  Machine machine = load_machine("t3_ring");
  machine.links.dims = {1};
  const Problem problem{.op = "gemm_reduce_scatter", .m = 2048, .n = 2048, .k = 1024, .dtype = DType::fp16};
  Config config{.tile_m = 128, .tile_n = 128, .tile_workers = 80};
  const double all = simulate(gemm_only(make_plan(problem, {.num_ranks = 1}, config)), machine).total_ns;
  config.tile_workers = 800;
  const Simulation crowded = simulate(gemm_only(make_plan(problem, {.num_ranks = 1}, config)), machine);
  EXPECT_EQ(crowded.total_ns, all);
  EXPECT_LE(crowded.units_busy[0], 1);
  EXPECT_GT(crowded.units_busy[0], 0.5);
}

// Updates that keep bank groups busy for long, and a GEMM that waits behind them: it ends sooner with priority. Then a
// rank
// that waits for communication at the end may wait longer.
TEST(Requests, ArbitrationHelpsAKernelThatMemoryBounds) {
  Machine machine = load_machine("t3_ring");
  machine.links.dims = {4};
  machine.controller->update_clocks = 32;
  machine.controller->starvation_clocks = 100000;
  const Problem problem{.op = "gemm_reduce_scatter",
                        .m = 4096,
                        .n = 4096,
                        .k = 4096,
                        .dtype = DType::fp16,
                        .reduction = Reduction::any,
                        .arena = {"c"}};
  Config config{.schedule = "track_trigger", .tile_m = 128, .tile_n = 128, .copy_lanes = 16};
  config.algorithm = Algorithm::ring;
  const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
  const auto gemm_ends = [&](Arbitration arbitration) {
    machine.controller->arbitration = arbitration;
    int64_t last = 0;
    for (const TraceEvent& event : simulate(plan, machine).trace.events) {
      if (plan.lanes[event.lane].engine == Engine::tiles) last = std::max(last, event.end_ns);
    }
    return last;
  };
  const int64_t in_turn = gemm_ends(Arbitration::round_robin);
  EXPECT_LT(gemm_ends(Arbitration::compute_first), in_turn);
  EXPECT_LT(gemm_ends(Arbitration::communication_aware), in_turn);
}

TEST(Requests, BooksAreKeptAndTheSameAgain) {
  const Machine machine = load_machine("t3_ring");
  Machine ring = machine;
  ring.links.dims = {4};
  Problem problem{.m = 1024, .n = 512, .k = 512, .dtype = DType::fp16, .reduction = Reduction::any};
  Config config{.schedule = "track_trigger", .tile_m = 64, .tile_n = 64};
  for (const auto& [op, algorithm] : {std::pair("gemm_reduce_scatter", Algorithm::ring),
                                      {"gemm_reduce_scatter", Algorithm::direct},
                                      {"gemm_all_reduce", Algorithm::ring},
                                      {"gemm_all_reduce", Algorithm::direct}}) {
    problem.op = op;
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
    for (const double busy : simulation.units_busy) EXPECT_LE(busy, 1);
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
  machine.memory.bandwidth_GBps = 50;
  EXPECT_GT(simulate(plan, machine).total_ns, before);
}

}  // namespace
}  // namespace tilewire
