// Simulates one call, and describes the ranks of a machine as a team.
// Called by the command line, the tuner, t3.cpp and tests.
#include <algorithm>
#include <optional>

#include "backends/sim/engine.hpp"
#include "backends/sim/slow_values.hpp"
#include "check/proofs.hpp"
#include "core/gemm_tasks.hpp"
#include "core/implied_order.hpp"
#include "core/text.hpp"
#include "lower/fix_groups.hpp"
#include "lower/passes.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {

namespace {

void check(const TrafficRequest& traffic, const Machine& machine) {
  constexpr double kLeastNs = 1;  // keeps the number of intervals, and so this host's memory, within limits
  constexpr double kMostNs = 1e12;
  require(traffic.interval_ns >= kLeastNs && traffic.interval_ns <= kMostNs,
          "interval_ns {}: want {} to {:g} ns, or 0 for no traffic over time", traffic.interval_ns, kLeastNs, kMostNs);
  require(machine.controller.has_value(), "machine {}: traffic over time needs a memory controller", machine.name);
  require(traffic.device >= 0 && traffic.device < num_devices(machine), "machine {}: no device {}, it has {}",
          machine.name, traffic.device, num_devices(machine));
}

// Whether some tiles read rows of A that are written during the call. Other tiles do all waits first
// (EventEngine::find_late_waits).
bool takes_arrivals(const Plan& plan) {
  return std::ranges::any_of(plan.lanes, [&](const Lane& lane) {
    return std::ranges::any_of(lane.tasks,
                               [&](const Task& task) { return is_gemm_tile(task) && takes_arrivals(plan, task); });
  });
}

// The plan for the engine, if it differs from `plan`: with waits by columns if the plan is not lowered, and with
// signals for LL data and stages.
std::optional<Plan> with_waits(const Plan& plan, const Machine& machine) {
  std::optional<Plan> changed;
  if (has_implied_order(plan)) changed = with_all_signals(plan);
  const bool defers = plan.target.empty() && machine.compute.waits_by_columns && !machine.controller;
  if (!defers || !takes_arrivals(plan)) return changed;
  if (!changed) changed = plan;
  static_cast<void>(lowering::defer_waits(*changed, {}));
  return changed;
}

// Run the plan. Returns whether all tasks have ended.
bool ran(sim::EventEngine& engine, const Machine& machine) {
  try {
    return engine.run();
  } catch (const sim::TooLong&) {
    fail(ErrorKind::invalid_input, "machine {}: the call takes more than 92 days; the slowest of its values: {}",
         machine.name, sim::slowest_values(machine));
  }
}

}  // namespace

Simulation simulate(const Plan& plan, const Machine& machine, const TrafficRequest& traffic) {
  validate(plan);
  validate(machine);
  if (has_groups(plan)) fail(ErrorKind::unsupported, "the plan has groups of rows: fix_groups gives them numbers");
  require(plan.team.num_ranks <= num_devices(machine), "machine {}: {} devices, but the plan has {} ranks",
          machine.name, num_devices(machine), plan.team.num_ranks);
  const bool over_time = traffic.interval_ns != 0;
  if (over_time) check(traffic, machine);
  const std::optional<Plan> changed = with_waits(plan, machine);
  const Plan& timed = changed ? *changed : plan;
  sim::EventEngine engine(timed, machine);
  if (over_time) engine.controller(traffic.device).note_traffic(traffic.interval_ns);
  if (ran(engine, machine)) {
    std::vector<IntervalLoad> intervals;
    if (over_time) intervals = engine.controller(traffic.device).traffic();
    Simulation result = std::move(engine).result();
    result.traffic = std::move(intervals);
    return result;
  }
  // NOTE: the checker finds the same deadlock: one worker per lane gets no further than the simulation.
  checking::Report report;
  static_cast<void>(checking::check_progress(checking::Tasks(timed), report));
  std::string words;
  for (const Violation& violation : report.violations()) words += (words.empty() ? "" : "; ") + violation.text;
  fail(ErrorKind::refused_plan, "the plan deadlocks: {}", words);
}

Team team_of(const Machine& machine, int num_ranks) {
  validate(machine);
  require(num_ranks >= 1 && num_ranks <= num_devices(machine), "machine {}: {} devices, want {} ranks", machine.name,
          num_devices(machine), num_ranks);
  const sim::Network network(machine.links);
  const bool nodes = machine.links.topology == Topology::two_level;
  Team team{.num_ranks = num_ranks};
  for (int rank = 0; rank < num_ranks; ++rank) {
    team.devices.push_back({.node = nodes ? rank / machine.links.dims[1] : 0,
                            .copy_engines = machine.copy.engines,
                            .sms = machine.compute.units});
  }
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) {
      const std::vector<int> route = network.route(from, to);
      Link link{.latency_us = network.latency_ns(route) * 1e-3};
      for (const int edge : route) {
        const double bandwidth = network.edges()[edge].bandwidth_GBps;
        link.bandwidth_GBps = link.bandwidth_GBps > 0 ? std::min(link.bandwidth_GBps, bandwidth) : bandwidth;
      }
      team.links.push_back(link);
    }
  }
  return team;
}

std::optional<double> exchange_ns(const Machine& machine, int num_ranks, int64_t bytes) {
  if (num_ranks < 2 || sim::passes_on(machine.links.topology)) return std::nullopt;
  const sim::Network network(machine.links);
  const double each = static_cast<double>(bytes) / (num_ranks - 1);
  std::vector<double> busy_ns(network.edges().size());
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) {
      for (const int edge : network.route(from, to)) busy_ns[edge] += each / network.edges()[edge].bandwidth_GBps;
    }
  }
  return *std::ranges::max_element(busy_ns);
}

}  // namespace tilewire
