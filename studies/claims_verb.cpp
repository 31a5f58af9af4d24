// tilewire-studies claims: papers' claims beside simulated figures.
// Called by main.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/all_cores.hpp"
#include "cli/flag_files.hpp"
#include "cli/machine_values.hpp"
#include "cli/options.hpp"
#include "cli/sim_rows.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "schedules/parts.hpp"
#include "studies/claim_points.hpp"
#include "studies/claims_table.hpp"
#include "studies/combine_plans.hpp"
#include "studies/dispatch_plans.hpp"
#include "studies/t3_claims.hpp"
#include "studies/t3_machine.hpp"
#include "studies/t3_study.hpp"
#include "studies/verbs.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire::cli {
namespace {

constexpr const char* kT3 = "t3";
constexpr int64_t kElementBytes = 2;

struct Claims {
  std::vector<std::string> papers;
  T3MachineFlags machine;
  bool machine_given = false;
  std::string json;
};

std::vector<std::string> known_papers() {
  std::vector<std::string> names{kT3};
  for (const PointPaper& paper : point_papers()) names.emplace_back(paper.name);
  return names;
}

// The papers that are named, or all, in the order of the table.
std::vector<std::string> papers_of(const Claims& flags) {
  const std::vector<std::string> known = known_papers();
  for (const std::string& name : flags.papers) {
    require(std::ranges::find(known, name) != known.end(), "--paper: unknown paper '{}'; known: {}", name,
            fmt::join(known, ", "));
  }
  std::vector<std::string> papers;
  std::ranges::copy_if(known, std::back_inserter(papers), [&](const std::string& name) {
    return flags.papers.empty() || std::ranges::find(flags.papers, name) != flags.papers.end();
  });
  return papers;
}

// Check that --set names values of one paper's machines.
void check_machine_flags(const Claims& flags, const std::vector<std::string>& papers) {
  refuse_sweeps(flags.machine);
  require(flags.machine.set.empty() || papers.size() == 1, "--set {}: name the one --paper whose machines it concerns",
          fmt::join(flags.machine.set, " "));
  const bool t3_alone = papers == std::vector<std::string>{kT3};
  require(!flags.machine_given || t3_alone, "--machine {}: goes with --paper t3; other papers' machines are their own",
          flags.machine.machine);
  if (!t3_alone) return;
  for (const std::string& set : flags.machine.set)
    require(!set.starts_with("compute.units="), "--set {}: claims are about 80 and 160 units, and parts of 80", set);
}

// By name and values of their own.
using MachineKey = std::pair<std::string, std::vector<std::string>>;
using Machines = std::map<MachineKey, Machine>;

MachineKey key_of(const ClaimPoint& point) { return {point.machine, point.set}; }

Machines machines_of(const std::vector<ClaimPoint>& points, const std::vector<std::string>& set) {
  Machines machines;
  for (const ClaimPoint& point : points) {
    if (machines.contains(key_of(point))) continue;
    machines[key_of(point)] = with_values(with_values(load_machine(point.machine), point.set), set);
  }
  return machines;
}

// A collective alone, of a matrix of 16-bit elements of which each device contributes a part.
PointTimes collective_times(const ClaimPoint& point, const Machine& machine) {
  PointTimes times{.point = point};
  const int64_t bytes = point.m * point.k * kElementBytes / point.ranks;
  for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::direct, CollectiveAlgorithm::ring}) {
    const CollectiveRequest request{collective_of(point.op), algorithm, bytes};
    times.ns[to_string(algorithm)] = simulate_collective(request, machine).run.simulation.total_ns;
  }
  return times;
}

// Those of a plan of library calls.
PointTimes serial_times(const ClaimPoint& point, const Plan& plan, const Machine& machine) {
  return {.point = point,
          .gemm_ns = ns_of(gemm_only(plan), machine),
          .comm_ns = ns_of(communication_only(plan), machine),
          .sequential_ns = ns_of(plan, machine)};
}

// An all-to-all and the GEMM of each rank's expert.
PointTimes dispatch_times(const ClaimPoint& point, const Machine& machine) {
  const TokenDispatch dispatch{.rows = point.rows, .n = point.n, .k = point.k};
  PointTimes times = serial_times(point, dispatch_plan(dispatch, DispatchWay::serial), machine);
  times.ns["shards"] = ns_of(dispatch_plan(dispatch, DispatchWay::shards), machine);
  times.ns["chunks"] = ns_of(dispatch_plan(dispatch, DispatchWay::chunks), machine);
  times.ns["tiles"] = ns_of(dispatch_plan(dispatch, DispatchWay::tiles), machine);
  return times;
}

// The GEMM of each rank's expert and an all-to-all; the kernel has the fastest of the tiles of the library's model.
PointTimes combine_times(const ClaimPoint& point, const Machine& machine) {
  constexpr std::pair<int64_t, int64_t> kTiles[] = {{256, 128}, {128, 256}, {128, 192}, {128, 160},
                                                    {128, 128}, {128, 64},  {64, 256},  {64, 128}};
  const Combine combine{
      .ranks = point.ranks, .rows = point.m / point.ranks, .n = point.n, .k = point.k, .copies = point.copies};
  PointTimes times = serial_times(point, combine_in_turn(combine), machine);
  double least_ns = std::numeric_limits<double>::infinity();
  for (const auto& [tile_m, tile_n] : kTiles)
    least_ns = std::min(least_ns, ns_of(combine_by_tiles(combine, tile_m, tile_n), machine));
  times.ns["tiles"] = least_ns;
  return times;
}

bool is_kernel(const Config& config) { return config.schedule == "fused" && config.compute == Provider::tiles; }

SimulatedPlan simulated_entry(const ClaimEntry& entry, const Problem& problem, const Team& team,
                              const Machine& machine) {
  if (entry.plan == ClaimPlan::fastest_kernel) return fastest_plan(problem, team, machine, is_kernel);
  Options options;
  options.set = entry.set;
  const Plan plan = make_plan(problem, team, config_of(options, entry.schedule, problem, team));
  return simulated(entry.plan == ClaimPlan::gemms ? gemm_only(plan) : plan, machine);
}

PointTimes simulate_point(const ClaimPoint& point, const Machine& machine) {
  if (is_collective(point)) return collective_times(point, machine);
  if (!point.rows.empty()) return dispatch_times(point, machine);
  if (point.copies > 0) return combine_times(point, machine);
  Options options;
  options.ranks = point.ranks;
  Problem problem = problem_of(options, point.op, point.m, point.n, point.k);
  problem.reduction = Reduction::any;
  const Team team = tilewire::team_of(machine, point.ranks);
  const Yardsticks least = yardsticks_of(problem, team, machine, true);
  PointTimes times{
      .point = point, .gemm_ns = least.gemm_ns, .comm_ns = least.comm_ns, .sequential_ns = least.sequential_ns};
  for (const ClaimEntry& entry : point.entries) {
    const SimulatedPlan made = simulated_entry(entry, problem, team, machine);
    times.ns[entry.name] = made.simulation.total_ns;
    times.configs[entry.name] = note_of(made.plan).config;
  }
  return times;
}

ClaimTimes simulate_points(const std::vector<ClaimPoint>& points, const Machines& machines) {
  ClaimTimes times(points.size());
  on_all_cores(points.size(), "shapes",
               [&](size_t i) { times[i] = simulate_point(points[i], machines.at(key_of(points[i]))); });
  return times;
}

// The figures of one paper; adds the simulated times to `result`.
PaperClaims claims_of_points(const PointPaper& paper, const std::vector<std::string>& set, nlohmann::json& result) {
  const std::vector<ClaimPoint> points = paper.points();
  const Machines machines = machines_of(points, set);
  const ClaimTimes times = simulate_points(points, machines);
  for (const auto& [key, machine] : machines) {
    const nlohmann::json json = machine;
    auto& known = result["machines"];
    if (std::ranges::find(known, json) == known.end()) known.push_back(json);
  }
  for (const PointTimes& each : times) {
    result["points"].push_back(json_of(each));
    result["points"].back()["paper_name"] = paper.name;
  }
  return paper.claims(times);
}

void claims_verb(const Claims& flags) {
  const std::vector<std::string> papers = papers_of(flags);
  check_machine_flags(flags, papers);
  check_files({{"--json", flags.json}}, {machine_file(flags.machine.machine)});
  nlohmann::json result;
  for (const char* list : {"machines", "points", "claims", "not_covered"}) result[list] = nlohmann::json::array();
  std::string text;
  const auto add = [&](const PaperClaims& paper) {
    text += (text.empty() ? "" : "\n") + text_of(paper);
    add_claims(result, paper);
  };
  if (papers.front() == kT3) {
    const Machine machine = machine_of(flags.machine);
    result["machine"] = machine;
    add(t3_claims(study_of(machine, true)));
  }
  for (const PointPaper& paper : point_papers()) {
    if (std::ranges::find(papers, paper.name) == papers.end()) continue;
    add(claims_of_points(paper, flags.machine.set, result));
  }
  if (!flags.json.empty()) write_file(flags.json, json_text(result, 1) + "\n");
  if (flags.json != "-") print(text);
}

constexpr const char* kClaimsFooter =
    R"(Differences are ours less the paper's, in the same unit; a claim that something is above or below a figure holds or
fails. Letters under `assumed` say which inputs that the paper does not give the figure depends on. T3's figures take
a minute, the others seconds.

Examples:
  tilewire-studies claims --json claims.json
  tilewire-studies claims --paper flux,ficco
  tilewire-studies claims --paper t3 --set links.bandwidth_GBps=150)";

}  // namespace

void add_claims(CLI::App& app) {
  auto flags = std::make_shared<Claims>();
  CLI::App* verb = app.add_subcommand("claims", "The figures of papers beside ours");
  verb->footer(kClaimsFooter);
  verb->add_option("--paper", flags->papers, fmt::format("{} (default: all)", fmt::join(known_papers(), ", ")))
      ->type_name("NAME[,NAME]")
      ->delimiter(',');
  add_t3_machine_flags(*verb, flags->machine);
  verb->get_option("--machine")->description("With --paper t3: a known machine, or a JSON file (default: t3_ring)");
  verb->get_option("--set")->description("With one --paper: set a value of its machines (--set links.latency_ns=500)");
  verb->add_option("--json", flags->json,
                   "Write {machine, machines, points, claims, not_covered} to a file, or - for standard output")
      ->type_name("FILE|-");
  verb->callback([flags, verb] {
    flags->machine_given = verb->count("--machine") > 0;
    claims_verb(*flags);
  });
}

}  // namespace tilewire::cli
