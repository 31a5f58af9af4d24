// Plans on the virtual clock: hand-computed times, properties of every plan, and an independent simulator's times of
// collectives. Built as the target `unit_sim`.
#include "tilewire/sim/sim.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "check_plans.hpp"
#include "every.hpp"
#include "operator_names.hpp"
#include "schedules/parts.hpp"
#include "schedules/task_limit.hpp"
#include "schedules/variants.hpp"
#include "sim_machines.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

using sim_machines::round_numbers;

void change_products(Plan& plan, const std::function<void(GemmParams&)>& change) {
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (task.kind == TaskKind::compute) change(task.gemm);
    }
  }
}

/// Two ranks with two tiles of 2 x 2 x 2 each (16 FLOP, 16 bytes), one of them for the other rank; then each rank sums
/// two partials.
Plan two_tiles() {
  Plan plan = check_plans::scatter_plan(2);
  change_products(plan, [](GemmParams& gemm) { gemm.tile_m = gemm.tile_n = 2; });
  return plan;
}

double ns(const Plan& plan, const Machine& machine) { return std::round(simulate(plan, machine).total_ns); }

TEST(Sim, TwoTilesOnTwoRanksToTheNanosecond) {
  // The handshake takes 10, the other rank's tile 16, its transfer 16 and 10; the local tile is made at the same time.
  EXPECT_EQ(ns(two_tiles(), round_numbers(2)), 10 + 16 + 16 + 10);
}

TEST(Sim, EachCostIsWhereItBelongs) {
  const Plan plan = two_tiles();
  Machine machine = round_numbers(2);
  machine.overheads.launch_ns = 100;
  machine.overheads.signal_ns = 5;
  EXPECT_EQ(ns(plan, machine), 100 + 15 + 16 + 16 + 15) << "a launch, and two signals on the way";
  machine = round_numbers(2);
  machine.links.bandwidth_GBps = 0.5;
  EXPECT_EQ(ns(plan, machine), 10 + 16 + 32 + 10);
  machine = round_numbers(2);
  machine.compute.tile_ns = 7;
  EXPECT_EQ(ns(plan, machine), 10 + 23 + 16 + 10);
  machine = round_numbers(2);
  machine.links.unit_bandwidth_GBps = 0.25;
  EXPECT_EQ(ns(plan, machine), 10 + 16 + 64 + 10) << "one unit does not fill the link";
}

TEST(Sim, WhatIsSlowerThanThePeakSaysSo) {
  Machine machine = round_numbers(2);
  machine.compute.tile_efficiency = {{"2x2", 0.5}, {"4x4", 0.1}};
  EXPECT_EQ(ns(two_tiles(), machine), 10 + 32 + 32) << "my own tile ends after the other's has arrived";
  Plan adds = check_plans::accumulate_plan();
  change_products(adds, [](GemmParams& gemm) { gemm.tile_m = gemm.tile_n = 2; });
  machine = round_numbers(2);
  const double as_stores = ns(adds, machine);
  machine.links.add_efficiency = 0.25;
  EXPECT_EQ(ns(adds, machine), as_stores + 48) << "16 bytes take 64 ns";
}

TEST(Sim, SumsHaveTheUnitsThatTheMachineGivesThem) {
  const Problem problem{.op = "all_reduce", .m = 64, .n = 64};
  const Plan plan = make_plan(problem, {.num_ranks = 2}, {.schedule = "sequential", .tile_m = 8, .tile_n = 64});
  Machine machine = round_numbers(2);
  machine.compute.units = 8;
  machine.memory.unit_bandwidth_GBps = 0.1;
  const double all = ns(plan, machine);
  machine.compute.side_units = 8;
  EXPECT_EQ(ns(plan, machine), all);
  machine.compute.side_units = 1;
  EXPECT_GT(ns(plan, machine), 2 * all);
}

TEST(Sim, TilesMayWaitColumnByColumn) {
  // Each rank has a local tile and one for the other rank: 64 ns each. Its A comes in two halves, 128 ns each on the
  // link.
  const Problem problem{.op = "all_gather_gemm", .m = 4, .n = 4, .k = 8, .dtype = DType::bf16};
  Config config{.schedule = "fused", .tile_m = 2, .tile_n = 2, .chunk_cols = 4, .transport = Transport::copy_engine};
  const Plan halves = make_plan(problem, {.num_ranks = 2}, config);
  Machine machine = round_numbers(2);
  machine.links.bandwidth_GBps = 0.125;
  const double whole = ns(halves, machine);
  EXPECT_EQ(whole, 10 + 2 * (128 + 10) + 64) << "a handshake, both halves, the tile";
  machine.compute.waits_by_columns = true;
  EXPECT_EQ(ns(halves, machine), whole - 32) << "half of the tile is made when the second half comes";
  machine.links.bandwidth_GBps = 1;  // 16 ns each: both are there when the local tile ends
  EXPECT_EQ(ns(halves, machine), 2 * 64);
  machine.links.bandwidth_GBps = 0.125;
  config.chunk_cols = 0;
  const Plan at_once = make_plan(problem, {.num_ranks = 2}, config);
  EXPECT_EQ(ns(at_once, machine), 10 + 256 + 10 + 64) << "all columns come together";
}

TEST(Sim, AWorkerHoldsOneResultThatIsOnItsWay) {
  Plan plan = two_tiles();
  for (Lane& lane : plan.lanes) {
    if (lane.engine == Engine::tiles) lane.tasks.push_back(lane.tasks[1]);  // the other rank's tile again
  }
  Machine machine = round_numbers(2);
  machine.links.bandwidth_GBps = 0.25;
  // The first tile is in transfer until 90. Until then the local tile's store is delayed, and with it the worker,
  // although its
  // mainloop ended at 42; then the third tile is made and sent.
  EXPECT_EQ(ns(plan, machine), 10 + 16 + 64 + 16 + 64 + 10);
}

TEST(Sim, TheTraceTellsWhatTheClockSaw) {
  const Plan plan = two_tiles();
  const Simulation simulation = simulate(plan, round_numbers(2));
  ASSERT_EQ(std::ssize(simulation.trace.events), num_tasks(plan));
  std::vector<std::vector<int64_t>> times;  // of rank 0
  for (const TraceEvent& event : simulation.trace.events) {
    if (plan.lanes[event.lane].rank == 0) times.push_back({event.task, event.taken_ns, event.start_ns, event.end_ns});
  }
  EXPECT_EQ(times, (std::vector<std::vector<int64_t>>{{0, 0, 0, 0}, {1, 0, 10, 52}, {2, 26, 26, 42}, {0, 0, 52, 52}}));
}

TEST(Sim, BytesAreTheCheckersAndBusyIsTheirTime) {
  const Plan plan = two_tiles();
  const Simulation simulation = simulate(plan, round_numbers(2));
  ASSERT_EQ(simulation.links.size(), 2);
  for (const LinkLoad& link : simulation.links) {
    EXPECT_EQ(link.bytes, 16);
    EXPECT_NEAR(link.busy, 16.0 / 52, 1e-4);
  }
  ASSERT_EQ(simulation.units_busy.size(), 2);
  for (const double busy : simulation.units_busy) EXPECT_NEAR(busy, 2 * 16.0 / 52, 1e-4);
  // A and B once for each tile that is not in the cache: 2 x 16 + 16; two partials of 16 arrive, two are summed to one.
  EXPECT_EQ(simulation.memory[0].read_bytes, 48 + 32);
  EXPECT_EQ(simulation.memory[0].written_bytes, 16 + 16 + 16);
}

TEST(Sim, UnitsAreBusyForWhatTheyMultiply) {
  Machine machine = round_numbers(1);
  machine.compute.units = 4;
  const Problem problem{.op = "gemm_reduce_scatter", .m = 8, .n = 8, .k = 64};
  for (const auto& [workers, busy] : {std::pair(1, 0.25), {2, 0.5}, {4, 1.0}, {64, 1.0}, {0, 1.0}}) {
    const Plan plan =
        gemm_only(make_plan(problem, {.num_ranks = 1}, {.tile_m = 2, .tile_n = 2, .tile_workers = workers}));
    const Simulation simulation = simulate(plan, machine);
    EXPECT_NEAR(simulation.units_busy[0], busy, 1e-3) << workers;
    EXPECT_LE(simulation.units_busy[0], 1) << workers;
    EXPECT_NEAR(simulation.total_ns, 2.0 * 8 * 8 * 64 / 4 / busy, 1) << workers;
  }
}

TEST(Sim, KnobsOfAPlanAreChecked) {
  Plan plan = two_tiles();
  change_products(plan, [](GemmParams& gemm) { gemm.cluster_split_k = 0; });
  EXPECT_THROW(static_cast<void>(simulate(plan, round_numbers(2))), Error);
  change_products(plan, [](GemmParams& gemm) { gemm.cluster_split_k = 1, gemm.tile_m = int64_t{1} << 31; });
  EXPECT_THROW(static_cast<void>(simulate(plan, round_numbers(2))), Error);
  change_products(plan, [](GemmParams& gemm) { gemm.tile_m = gemm.tile_n = int64_t{1} << 30; });
  EXPECT_THROW(static_cast<void>(simulate(plan, round_numbers(2))), Error) << "whole tiles take years";
}

TEST(Sim, EveryVariantRunsAndKeepsTheBooks) {
  int plans = 0;
  for (const char* op : testing::operator_names()) {
    Problem problem{.op = op, .m = 96, .n = 64, .k = 64, .reduction = Reduction::any};
    if (problem.op == "all_reduce") problem.k = 0;
    const Machine machine = load_machine("h200x4");
    for (const Config& config :
         testing::every(all_variants(problem, {.num_ranks = 4}, {.tile_m = 16, .tile_n = 16, .chunk_rows = 8}))) {
      const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
      const Simulation simulation = simulate(plan, machine);
      ASSERT_EQ(std::ssize(simulation.trace.events), num_tasks(plan)) << to_string(config);
      ASSERT_EQ(simulation, simulate(plan, machine)) << "not the same again: " << to_string(config);
      for (const LinkLoad& link : simulation.links) ASSERT_LE(link.busy, 1 + 1e-6) << to_string(config);
      for (const MemoryLoad& memory : simulation.memory) ASSERT_LE(memory.busy, 1 + 1e-6) << to_string(config);
      for (const double busy : simulation.units_busy) ASSERT_LE(busy, 1 + 1e-6) << to_string(config);
      EXPECT_EQ(simulation.units_busy[0] > 0, problem.k > 0) << to_string(config);
      ++plans;
    }
  }
  EXPECT_GT(plans, 500 / testing::kEvery);
}

TEST(Sim, WhatLeavesADeviceIsWhatTheCheckerCounts) {
  for (const char* op : testing::operator_names(testing::has_gemm)) {
    const Problem problem{.op = op, .m = 512, .n = 512, .k = 512};
    const Plan plan = make_plan(problem, {.num_ranks = 4}, {.tile_m = 64, .tile_n = 64});
    Machine machine = bare_network("fully_connected:4");
    machine.links.forwarding = Forwarding::cut_through;
    int64_t wanted = 0;
    for (const LinkTraffic& link : traffic_of(plan)) wanted += link.from == link.to ? 0 : link.bytes;
    int64_t carried = 0;
    for (const LinkLoad& link : simulate(plan, machine).links) carried += link.bytes;
    EXPECT_EQ(carried, wanted) << op;
  }
}

TEST(Sim, AHaltIsExplainedInTheCheckersWords) {
  Plan plan = two_tiles();
  for (Lane& lane : plan.lanes) lane.tasks[0].posts.clear();
  try {
    static_cast<void>(simulate(plan, round_numbers(2)));
    FAIL() << "a plan without its posts has come to an end";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::refused_plan);
    EXPECT_NE(std::string(error.what()).find("deadlock: task 1 of lane tiles on rank 0 (compute) waits for ready"),
              std::string::npos)
        << error.what();
  }
}

TEST(Sim, APlanThatIsLargerThanTheMachineIsRefused) {
  EXPECT_THROW(static_cast<void>(simulate(check_plans::scatter_plan(3), round_numbers(2))), Error);
}

/// One copy of 100 bytes by rank 1's engine, and a sync of rank 0 that waits for it.
Plan one_copy(int from, int to) {
  Plan plan{.team = {.num_ranks = 2}};
  plan.buffers = {{.name = "x", .dtype = DType::bf16, .rows = 1, .cols = 50, .scope = Scope::symmetric},
                  {.name = "y", .dtype = DType::bf16, .rows = 1, .cols = 50, .scope = Scope::symmetric}};
  plan.signals = {{"done", 0, 1}};
  Task copy{.kind = TaskKind::copy, .posts = {{{0, 0}}}};
  copy.reads = {{.rank = from, .buffer = 0, .rows = 1, .cols = 50}};
  copy.writes = {{{.rank = to, .buffer = 1, .rows = 1, .cols = 50}}};
  plan.lanes = {{.rank = 1, .engine = Engine::copy, .name = "copy", .tasks = {copy}},
                {.rank = 0, .engine = Engine::tiles, .name = "wait", .tasks = {{.waits = {{{0, 0}}}}}}};
  return plan;
}

TEST(Sim, WhatIsPulledIsAskedForAndThenTold) {
  EXPECT_EQ(ns(one_copy(1, 0), round_numbers(2)), 100 + 10) << "the post comes with the data";
  EXPECT_EQ(ns(one_copy(0, 1), round_numbers(2)), 10 + 100 + 10 + 10) << "asked for, sent, here; then it is told";
  Machine hops = round_numbers(2);
  hops.links.forwarding = Forwarding::store_and_forward;
  EXPECT_EQ(ns(one_copy(0, 1), hops), 10 + 100 + 10 + 10);
}

TEST(Sim, ALibrarysCollectivesTakeWhatWasMeasured) {
  const auto us = [](int64_t m, int64_t n) {
    const Problem problem{.op = "all_reduce", .m = m, .n = n, .reduction = Reduction::any};
    const Config config{.schedule = "sequential", .collective = Provider::library};
    return simulate(make_plan(problem, {.num_ranks = 4}, config), load_machine("h200x4")).total_ns * 1e-3;
  };
  EXPECT_NEAR(us(1, 8192), 11.4, 1) << "16 KiB: NCCL takes 11.4 us";
  const double GBps = 1.5 * 65536 * 8192 * 2 / us(65536, 8192) * 1e-3;
  EXPECT_GT(GBps, 263);
  EXPECT_LT(GBps, 282);
}

TEST(Sim, TypesHaveTheirSpeeds) {
  const auto total = [](DType dtype, bool tf32) {
    const Problem problem{
        .op = "gemm_reduce_scatter", .m = 4096, .n = 4096, .k = 4096, .dtype = dtype, .allow_tf32 = tf32};
    return simulate(make_plan(problem, {.num_ranks = 1}, {}), load_machine("h200x4")).total_ns;
  };
  EXPECT_NEAR(total(DType::fp32, true) / total(DType::bf16, false), 2, 0.1);
  EXPECT_GT(total(DType::fp32, false), 5 * total(DType::fp32, true));
}

/// Columns of a line.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream text(line);
  for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
  return fields;
}

CollectiveAlgorithm algorithm_of(const std::string& name) {
  return name == "ring" ? CollectiveAlgorithm::ring : CollectiveAlgorithm::direct;
}

TEST(SimCollectives, AgreeWithASTRASim) {
  std::ifstream file(TILEWIRE_COLLECTIVE_TIMES);
  std::string line;
  std::getline(file, line);
  int rows = 0;
  while (std::getline(file, line)) {
    const std::vector<std::string> row = fields_of(line);
    ASSERT_EQ(row.size(), 9) << line;
    const std::string kind = row[0] == "Ring" ? "ring" : row[0] == "Torus2D" ? "torus2d" : "fully_connected";
    Machine machine = bare_network(kind + ":" + row[1]);
    set_value(machine, "links.bandwidth_GBps", row[2]);
    set_value(machine, "links.latency_ns", row[3]);
    const Plan plan =
        collective_plan(parse<Collective>(row[5], "collective"), algorithm_of(row[4]), std::stoll(row[6]), machine);
    const double wanted = std::stod(row[7]);
    EXPECT_NEAR(simulate(plan, machine).total_ns, wanted, 0.001 * wanted) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 58);
}

TEST(SimCollectives, MoreBandwidthAndLessLatencyAreNeverSlower) {
  for (const char* network : {"ring:5", "fully_connected:4", "switch:8", "torus2d:2x4", "two_level:2x4"}) {
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
      for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::ring, CollectiveAlgorithm::direct}) {
        double before = std::numeric_limits<double>::infinity();
        for (const auto& [bandwidth, latency] :
             {std::pair("10", "2000"), {"20", "2000"}, {"20", "500"}, {"300", "0"}}) {
          Machine machine = bare_network(network);
          for (const char* link : {"links.", "links.between_"}) {
            set_value(machine, std::string(link) + "bandwidth_GBps", bandwidth);
            set_value(machine, std::string(link) + "latency_ns", latency);
          }
          const double now = simulate(collective_plan(collective, algorithm, 80000, machine), machine).total_ns;
          EXPECT_LE(now, before) << network << " " << to_string(collective);
          before = now;
        }
      }
    }
  }
}

TEST(SimCollectives, HalvingAndDoublingByHand) {
  // 8 devices, 8000 bytes, links of 1 byte per ns: 4000, 2000, 1000 and three latencies; all_reduce takes twice that.
  Machine machine = bare_network("fully_connected:8");
  set_value(machine, "links.bandwidth_GBps", "1");
  set_value(machine, "links.latency_ns", "10");
  const auto total = [&](Collective collective, int64_t bytes) {
    return std::round(
        simulate(collective_plan(collective, CollectiveAlgorithm::halving_doubling, bytes, machine), machine).total_ns);
  };
  EXPECT_EQ(total(Collective::reduce_scatter, 8000), 7030);
  EXPECT_EQ(total(Collective::all_gather, 1000), 7030);
  EXPECT_EQ(total(Collective::all_reduce, 8000), 14060);
}

TEST(SimCollectives, ASwitchIsTwoHops) {
  Machine machine = bare_network("switch:4");
  set_value(machine, "links.bandwidth_GBps", "1");
  set_value(machine, "links.latency_ns", "10");
  const Plan plan = collective_plan(Collective::all_gather, CollectiveAlgorithm::ring, 1000, machine);
  EXPECT_EQ(ns(plan, machine), 3 * 2 * 1010) << "stored in the switch, then forwarded";
  set_value(machine, "links.forwarding", "cut_through");
  EXPECT_EQ(ns(plan, machine), 3 * 1020);
}

TEST(SimCollectives, ACopyCostsItsIssueAndAWaitItsGate) {
  Machine machine = round_numbers(3);
  const Plan plan = collective_plan(Collective::all_gather, CollectiveAlgorithm::ring, 100, machine);
  EXPECT_EQ(ns(plan, machine), 2 * 110);
  machine.copy.issue_ns = 7;
  machine.copy.doorbell_ns = 1000;
  EXPECT_EQ(ns(plan, machine), 2 * 117 + 1000) << "the first step waits for nothing";
}

TEST(SimCollectives, WhatCannotBeDoneIsRefused) {
  const Machine six = bare_network("ring:6");
  const auto refused = [&](Collective collective, CollectiveAlgorithm algorithm, int64_t bytes) {
    EXPECT_THROW(static_cast<void>(collective_plan(collective, algorithm, bytes, six)), Error);
  };
  refused(Collective::all_reduce, CollectiveAlgorithm::halving_doubling, 12);
  refused(Collective::all_to_all, CollectiveAlgorithm::halving_doubling, 12);
  refused(Collective::all_gather, CollectiveAlgorithm::ring, 0);
  refused(Collective::all_reduce, CollectiveAlgorithm::ring, -2);
  refused(Collective::none, CollectiveAlgorithm::ring, 12);
}

TEST(Sim, APlanOfTooManyTasksIsRefusedWhileItIsMade) {
  const Problem problem{.op = "gemm_all_reduce", .m = 256, .n = 256, .k = 256};
  const Config config{.schedule = "two_stream"};
  const auto made = [&] { return num_tasks(make_plan(problem, {.num_ranks = 4}, config)); };
  const int64_t tasks = made();
  {
    const TaskLimit limit(tasks);
    EXPECT_EQ(made(), tasks);
    const TaskLimit lower(tasks - 1);
    EXPECT_FALSE(lower.met());
    try {
      static_cast<void>(made());
      FAIL() << "one task more than the limit";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_EQ(std::string(error.what()).find("schedule two_stream: a plan of more than"), 0) << error.what();
    }
    EXPECT_TRUE(lower.met());
    EXPECT_FALSE(limit.met()) << "the one around it refused nothing";
  }
  EXPECT_EQ(made(), tasks);
}

}  // namespace
}  // namespace tilewire
