// Simulates one plan on one machine, and its baselines.
// Called by sim_request.cpp, sim_compare.cpp and studies/.
#include "cli/sim_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "cli/bench_table.hpp"
#include "core/text.hpp"
#include "lower/fix_groups.hpp"
#include "schedules/parts.hpp"
#include "schedules/task_limit.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::cli {
namespace {

constexpr std::array kCollectives{Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                  Collective::all_to_all};

nlohmann::json links_json(const Simulation& simulation) {
  nlohmann::json links = nlohmann::json::array();
  for (const LinkLoad& link : simulation.links) {
    links.push_back({{"from", link.from}, {"to", link.to}, {"bytes", link.bytes}, {"busy", link.busy}});
  }
  return links;
}

nlohmann::json memory_json(const Simulation& simulation) {
  nlohmann::json devices = nlohmann::json::array();
  for (const MemoryLoad& memory : simulation.memory) {
    devices.push_back({{"read_bytes", memory.read_bytes},
                       {"written_bytes", memory.written_bytes},
                       {"communication_read_bytes", memory.communication_read_bytes},
                       {"communication_written_bytes", memory.communication_written_bytes},
                       {"busy", memory.busy}});
  }
  return devices;
}

// Add a time in us and in ns; null if it is unknown.
void add_time(nlohmann::json& row, const std::string& name, std::optional<double> ns) {
  row[name + "_us"] = ns ? nlohmann::json(*ns * 1e-3) : nlohmann::json();
  row[name + "_ns"] = ns ? nlohmann::json(*ns) : nlohmann::json();
}

nlohmann::json lanes_json(const SimulatedPlan& run) {
  nlohmann::json lanes = nlohmann::json::array();
  for (const LaneSummary& each : summarize(run.plan, run.simulation.trace)) {
    const Lane& lane = run.plan.lanes[each.lane];
    lanes.push_back({{"rank", lane.rank},
                     {"lane", lane.name},
                     {"engine", to_string(lane.engine)},
                     {"busy_ns", each.busy_ns},
                     {"waiting_ns", each.waiting_ns},
                     {"span_ns", each.span_ns}});
  }
  return lanes;
}

// Add the fields that rows of operators, of collectives and of plans share.
void add_outcome(nlohmann::json& row, const SimulatedPlan& run, const Machine& machine) {
  const Simulation& simulation = run.simulation;
  row.update({{"machine", machine.name},
              {"rank_ns", simulation.rank_ns},
              {"lanes", lanes_json(run)},
              {"events", simulation.events},
              {"links", links_json(simulation)},
              {"memory", memory_json(simulation)},
              {"units_busy", simulation.units_busy}});
  if (machine.tracker) row["tracker"] = {{"most", simulation.most_tracked}, {"without_room", simulation.not_tracked}};
  add_time(row, "total", simulation.total_ns);
}

// Assumptions, since T3's paper has neither: the tile of a workgroup, and that of all DMA commands the next 64 start as
// soon as they are ready.
constexpr int64_t kT3Tile = 128;
constexpr int kT3CopyLanes = 64;

Config track_trigger_config(Algorithm algorithm, int copy_lanes) {
  Config config{.schedule = "track_trigger", .tile_m = kT3Tile, .tile_n = kT3Tile};
  config.algorithm = algorithm;
  config.copy_lanes = copy_lanes;
  return config;
}

// The config for a machine. Rings and track-and-trigger hardware are properties of the machine, which a team does not
// have.
Config config_on(const Options& options, const Entry& entry, const Problem& problem, const Team& team,
                 const Machine& machine) {
  Options set = options;
  set.set = entry.set;
  for (const Config& choice : track_trigger_choices(machine)) {
    if (entry.schedule != choice.schedule) continue;
    const Config config = with_knobs(choice, set);
    if (!find_schedule(choice.schedule).refuses(problem, team, config)) return config;
  }
  return config_of(options, entry, problem, team);
}

// The configs of a schedule that are worth a simulation.
std::vector<Config> candidates_on(const Schedule& schedule, const Problem& problem, const Team& team,
                                  const Machine& machine) {
  std::vector<Config> list = schedule.candidates(problem, team);
  for (const Config& choice : track_trigger_choices(machine)) {
    if (machine.tracker && choice.schedule == schedule.name) list.push_back(choice);
  }
  return list;
}

// The most tasks of a plan that is one of many to try, and of plans that are simulated at the same time. A task takes
// about a kilobyte.
constexpr int64_t kMostTasks = 1'000'000;
constexpr int64_t kMostTasksBeside = 200'000;

// The plan, or nothing if it would have more tasks.
std::optional<Plan> plan_of_at_most(int64_t tasks, const Problem& problem, const Team& team, const Config& config) {
  const TaskLimit limit(tasks);
  try {
    return make_plan(problem, team, config);
  } catch (const Error&) {
    if (!limit.met()) throw;
    return std::nullopt;
  }
}

// Call `use` with a plan. Only one thread at a time has a large plan. False if the plan is too large.
bool with_plan(const Problem& problem, const Team& team, const Config& config, const std::function<void(Plan)>& use) {
  if (std::optional<Plan> plan = plan_of_at_most(kMostTasksBeside, problem, team, config)) {
    use(std::move(*plan));
    return true;
  }
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  std::optional<Plan> plan = plan_of_at_most(kMostTasks, problem, team, config);
  if (plan) use(std::move(*plan));
  return plan.has_value();
}

std::optional<SimulatedPlan> if_within_limits(const Problem& problem, const Team& team, const Config& config,
                                              const Machine& machine) {
  std::optional<SimulatedPlan> made;
  static_cast<void>(with_plan(problem, team, config, [&](Plan plan) { made = simulated(std::move(plan), machine); }));
  return made;
}

// "auto": the fastest of all configs that any schedule would measure.
SimulatedPlan simulated_entry(const Options& options, const Entry& entry, const Problem& problem, const Team& team,
                              const Machine& machine) {
  if (entry.schedule == "auto") return fastest_plan(problem, team, machine, [](const Config&) { return true; });
  const Config config = config_on(options, entry, problem, team, machine);
  if (!entry.may_be_refused) return simulated(make_plan(problem, team, config), machine);
  std::optional<SimulatedPlan> made = if_within_limits(problem, team, config, machine);
  if (!made)
    fail(ErrorKind::unsupported, "schedule {}: a plan of more than {} tasks; name the schedule to have it simulated",
         config.schedule, kMostTasks);
  return std::move(*made);
}

// One row of a problem, without the baselines.
Simulated simulate_entry(const Options& options, const Problem& problem, const Entry& entry, const Team& team,
                         const Machine& machine) {
  Simulated made{.title = fmt::format("{} {}x{}x{} {}", problem.op, problem.m, problem.n, problem.k, entry.name)};
  made.run = simulated_entry(options, entry, problem, team, machine);
  made.row = sizes_json(problem);
  made.row.update({{"schedule", entry.schedule},
                   {"ranks", options.ranks},
                   {"dtype", to_string(problem.dtype)},
                   {"config", config_json(note_of(made.run.plan).config)}});
  if (!options.configs.empty()) made.row["name"] = entry.name;
  add_outcome(made.row, made.run, machine);
  return made;
}

std::optional<double> known(double ns) { return std::isfinite(ns) ? std::optional(ns) : std::nullopt; }

void compare(nlohmann::json& row, const Problem& problem, const Team& team, const Machine& machine,
             const Yardsticks& least) {
  const double overlap = overlap_efficiency(row["total_ns"], least.gemm_ns, least.sequential_ns);
  const int64_t bytes = find_operator(problem.op).least_bytes(problem, team.num_ranks) / team.num_ranks;
  const std::optional<double> link_ns = exchange_ns(machine, team.num_ranks, bytes);
  std::optional<double> free_ns;
  if (link_ns && least.gemm_ns > 0 && known(least.gemm_ns)) free_ns = std::max(*link_ns, least.gemm_ns);
  row["overlap"] = std::isfinite(overlap) ? nlohmann::json(overlap) : nlohmann::json();
  row["sequential_config"] = config_json(least.sequential);
  add_time(row, "gemm", known(least.gemm_ns));
  add_time(row, "comm", known(least.comm_ns));
  add_time(row, "sequential", known(least.sequential_ns));
  add_time(row, "link", link_ns);
  add_time(row, "free", free_ns);
}

}  // namespace

Yardsticks yardsticks_of(const Problem& problem, const Team& team, const Machine& machine, bool library_alone) {
  Yardsticks least;
  Problem any = problem;
  any.reduction = Reduction::any;  // as users run a library's collectives
  for (const Config& config : find_schedule("sequential").candidates(any, team)) {
    if (library_alone && config.collective != Provider::library) continue;
    static_cast<void>(with_plan(any, team, config, [&](const Plan& made) {
      Plan plan = fix_groups(made);
      const double total_ns = ns_of(plan, machine);
      ++least.configs;
      if (total_ns < least.sequential_ns) least.sequential = config;
      least.sequential_ns = std::min(least.sequential_ns, total_ns);
      least.gemm_ns = std::min(least.gemm_ns, ns_of(gemm_only(plan), machine));
      least.comm_ns = std::min(least.comm_ns, ns_of(communication_only(std::move(plan)), machine));
    }));
  }
  return least;
}

double ns_of(const Plan& plan, const Machine& machine) {
  return num_tasks(plan) == 0 ? 0 : simulate(plan, machine).total_ns;
}

SimulatedPlan simulated(Plan made, const Machine& machine) {
  Plan plan = fix_groups(made);
  Simulation simulation = simulate(plan, machine);
  return {.plan = std::move(plan), .simulation = std::move(simulation)};
}

SimulatedPlan fastest_plan(const Problem& problem, const Team& team, const Machine& machine,
                           const std::function<bool(const Config&)>& accepts) {
  std::optional<SimulatedPlan> best;
  for (const Schedule& schedule : schedules()) {
    for (const Config& config : candidates_on(schedule, problem, team, machine)) {
      if (!accepts(config) || schedule.refuses(problem, team, config)) continue;
      std::optional<SimulatedPlan> made = if_within_limits(problem, team, config, machine);
      if (made && (!best || made->simulation.total_ns < best->simulation.total_ns)) best = std::move(made);
    }
  }
  if (!best) fail(ErrorKind::unsupported, "{}: no candidate of any schedule is accepted", problem.op);
  return std::move(*best);
}

std::vector<Config> track_trigger_choices(const Machine& machine) {
  const Config ring = track_trigger_config(Algorithm::ring, kT3CopyLanes);
  if (machine.links.topology == Topology::ring) return {ring};
  if (!machine.tracker) return {};
  return {track_trigger_config(Algorithm::direct, 1), ring};
}

std::vector<Simulated> simulate_operator(const Options& options, const Problem& problem,
                                         const std::vector<Entry>& entries, const Machine& machine) {
  const Team team = tilewire::team_of(machine, options.ranks);
  std::vector<Simulated> rows;
  for (const Entry& entry : entries) {
    try {
      rows.push_back(simulate_entry(options, problem, entry, team, machine));
      if (options.trace.empty() && entries.size() > 1) rows.back().run = {};  // not needed any more
    } catch (const Error& error) {
      if (!entry.may_be_refused || error.kind() != ErrorKind::unsupported) throw;
      rows.push_back({.row = sizes_json(problem), .refused = error.what()});
      rows.back().row.update({{"name", entry.name}, {"reason", error.what()}});
    }
  }
  if (std::ranges::all_of(rows, [](const Simulated& each) { return !each.refused.empty(); })) return rows;
  const Yardsticks least = yardsticks_of(problem, team, machine, false);
  for (Simulated& each : rows) {
    if (!each.refused.empty()) continue;
    compare(each.row, problem, team, machine, least);
    each.sequential_configs = least.configs;
  }
  return rows;
}

std::string collective_names() {
  std::string names;
  for (const Collective each : kCollectives) names += (names.empty() ? "" : ", ") + to_string(each);
  return names;
}

Collective collective_of(const std::string& name) {
  const auto found = std::ranges::find(kCollectives, name, [](Collective each) { return to_string(each); });
  require(found != kCollectives.end(), "--bytes: '{}' is no collective; known: {}", name, collective_names());
  return *found;
}

Simulated simulate_collective(const CollectiveRequest& request, const Machine& machine) {
  const std::string collective = to_string(request.collective);
  const std::string algorithm = to_string(request.algorithm);
  Simulated made{.title = fmt::format("{} {} of {} bytes", algorithm, collective, request.bytes)};
  made.run = simulated(collective_plan(request.collective, request.algorithm, request.bytes, machine), machine);
  made.row = {
      {"collective", collective}, {"algorithm", algorithm}, {"bytes", request.bytes}, {"ranks", num_devices(machine)}};
  add_outcome(made.row, made.run, machine);
  return made;
}

Simulated simulate_plan(const std::string& path, const Plan& plan, const Machine& machine) {
  Simulated made{.title = path, .run = simulated(plan, machine)};
  const auto [problem, config] = note_of(plan);
  made.row = sizes_json(problem);
  made.row.update({{"plan", path},
                   {"schedule", config.schedule},
                   {"ranks", plan.team.num_ranks},
                   {"dtype", to_string(problem.dtype)},
                   {"config", config_json(config)}});
  add_outcome(made.row, made.run, machine);
  return made;
}

}  // namespace tilewire::cli
