// tilewire sim: how long plans would take on a machine that is described by numbers.
// Called by main.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "cli/all_cores.hpp"
#include "cli/chakra_files.hpp"
#include "cli/flag_files.hpp"
#include "cli/machine_values.hpp"
#include "cli/plan_files.hpp"
#include "cli/sim_anomalies.hpp"
#include "cli/sim_compare.hpp"
#include "cli/sim_rows.hpp"
#include "cli/sim_sweep.hpp"
#include "cli/sim_t3.hpp"
#include "cli/sim_table.hpp"
#include "cli/traces.hpp"
#include "cli/verbs.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire::cli {
namespace {

struct Sim {
  Options options;
  std::string machine;
  std::string topology;
  std::vector<std::string> sweeps;
  std::string bytes_text;
  std::optional<int64_t> bytes;    // of bytes_text
  std::vector<std::string> files;  // of plans, among the operators
  std::string algorithm = "ring";
  std::string compare;
  std::string chakra;
  bool list = false;
  bool show = false;
  bool ranks_given = false;
};

// `--set` of machines has a dot, that of knobs has none.
std::vector<std::string> take_machine_values(Options& options) {
  std::vector<std::string> values;
  std::erase_if(options.set, [&](const std::string& set) {
    const bool machine = set.substr(0, set.find('=')).find('.') != std::string::npos;
    if (machine) values.push_back(set);
    return machine;
  });
  return values;
}

Machine machine_of(const Sim& sim, const std::vector<std::string>& values) {
  require(sim.machine.empty() != sim.topology.empty(), "give one of --machine (known: {}) and --topology",
          fmt::join(machine_names(), ", "));
  return with_values(sim.machine.empty() ? bare_network(sim.topology) : load_machine(sim.machine), values);
}

std::string list_of_machines() {
  std::string text;
  for (const std::string& name : machine_names()) {
    text += fmt::format("{:<16} {}\n", name, load_machine(name).summary);
  }
  return text;
}

struct PlanFile {
  std::string path{};
  Plan plan{};
};

// A collective, a plan, or a problem with all its rows, on one machine.
struct Job {
  const SweepPoint* point = nullptr;
  std::optional<CollectiveRequest> collective{};
  const PlanFile* file = nullptr;
  Problem problem{};
};

// With as many ranks as the machine has devices where nothing else is said.
Options options_on(const Sim& sim, const Machine& machine) {
  Options options = sim.options;
  if (!sim.ranks_given) options.ranks = num_devices(machine);
  return options;
}

std::vector<Job> jobs_of(const Sim& sim, const SweepPoint& point, const std::vector<PlanFile>& files) {
  std::vector<Job> jobs;
  for (const PlanFile& file : files) jobs.push_back({.point = &point, .file = &file});
  if (!files.empty()) return jobs;
  if (sim.bytes) {
    const auto algorithm = parse<CollectiveAlgorithm>(sim.algorithm, "--algorithm");
    for (const std::string& name : sim.options.operators)
      jobs.push_back({.point = &point, .collective = CollectiveRequest{collective_of(name), algorithm, *sim.bytes}});
    return jobs;
  }
  const Options options = options_on(sim, point.machine);
  check_names(options);
  for (const Problem& problem : problems_of(options)) jobs.push_back({.point = &point, .problem = problem});
  return jobs;
}

std::vector<Simulated> do_job(const Sim& sim, const Job& job) {
  const Machine& machine = job.point->machine;
  std::vector<Simulated> rows;
  if (job.collective) {
    rows.push_back(simulate_collective(*job.collective, machine));
  } else if (job.file != nullptr) {
    rows.push_back(simulate_plan(job.file->path, job.file->plan, machine));
  } else {
    const Options options = options_on(sim, machine);
    rows = simulate_operator(options, job.problem, entries_of(options), machine);
  }
  for (Simulated& made : rows) {
    if (!job.point->settings.empty()) made.row["settings"] = job.point->settings;
    for (const auto& [key, value] : job.point->settings) made.title += fmt::format(", {} = {}", key, value);
    if (sim.options.json.empty()) made.row.erase("lanes");
    if (sim.options.trace.empty()) made.run.simulation = {};
    if (sim.options.trace.empty() && sim.chakra.empty()) made.run.plan = {};
  }
  return rows;
}

// On all cores; rows keep their order.
std::vector<Simulated> do_all(const Sim& sim, const std::vector<Job>& jobs) {
  std::vector<std::vector<Simulated>> done(jobs.size());
  on_all_cores(jobs.size(), "problems", [&](size_t i) { done[i] = do_job(sim, jobs[i]); });
  std::vector<Simulated> rows;
  for (std::vector<Simulated>& each : done) std::ranges::move(each, std::back_inserter(rows));
  return rows;
}

std::string text_of(const Sim& sim, const Machine& machine, const std::vector<Simulated>& rows) {
  std::string text = machine.name + "\n" + table_of(rows, swept_keys(sim.sweeps));
  for (const Simulated& each : rows) {
    if (!sim.files.empty() && sim.sweeps.empty()) text += fmt::format("\n{}\n{}", each.title, loads_text(each.row));
  }
  return text;
}

// Plans that are executed, with --trace and --chakra. Returns the text about them.
std::string write_plans(const Sim& sim, const Machine& machine, const std::vector<Simulated>& rows) {
  std::string text;
  TraceFile traces;
  for (const Simulated& made : rows) {
    if (!sim.options.trace.empty() && made.refused.empty()) {
      traces.add(made.title, made.run.plan, made.run.simulation.trace);
    }
  }
  if (!sim.options.trace.empty()) {
    traces.write(sim.options.trace);
    text += traces.summary();
  }
  if (!sim.chakra.empty() && rows.front().refused.empty()) {
    text += write_chakra(sim.chakra, rows.front().run.plan, machine);
  }
  return text;
}

void simulate_all(const Sim& sim, const Machine& machine) {
  std::vector<PlanFile> files(sim.files.size());
  on_all_cores(files.size(), "plans", [&](size_t i) { files[i] = {sim.files[i], load_proven_plan(sim.files[i])}; });
  const std::vector<SweepPoint> points = sweep_points(machine, sim.sweeps);
  std::vector<Job> jobs;
  for (const SweepPoint& point : points) {
    for (Job& job : jobs_of(sim, point, files)) jobs.push_back(std::move(job));
  }
  const size_t num_rows = jobs.size() * (sim.bytes || !files.empty() ? 1 : entries_of(sim.options).size());
  require(sim.chakra.empty() || num_rows == 1, "--chakra: the flags name {} plans; name one schedule and one shape",
          num_rows);
  const std::vector<Simulated> rows = do_all(sim, jobs);
  nlohmann::json result = {
      {"machine", machine}, {"rows", nlohmann::json::array()}, {"refused", nlohmann::json::array()}};
  for (const Simulated& made : rows) result[made.refused.empty() ? "rows" : "refused"].push_back(made.row);
  std::string text = text_of(sim, machine, rows);
  if (!sim.sweeps.empty()) {
    result["anomalies"] = anomalies_of(result["rows"]);
    text += anomalies_text(result["anomalies"]);
  }
  // NOTE: files first: a table that cannot be printed loses nothing else.
  if (!sim.options.json.empty()) write_file(sim.options.json, json_text(result, 1) + "\n");
  text += write_plans(sim, points.front().machine, rows);
  if (sim.options.json != "-") print(text);
  require(!result["rows"].empty(), "every schedule refuses: {}", rows.front().refused);
}

// What says which plan an operator's is.
constexpr std::array kPlanFlags{"-m",         "-n",           "-k",         "--shapes",    "--model",  "--tokens",
                                "--dtype",    "--out-dtype",  "--b-layout", "--reduction", "--bias",   "--epilogue",
                                "--gathered", "--allow-tf32", "--arena",    "--schedule",  "--configs"};

// Of flags that ask for nothing to be simulated.
void want_only(const CLI::App& verb, std::initializer_list<std::string> allowed) {
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = option->get_name();
    require(option->count() == 0 || std::ranges::find(allowed, name) != allowed.end(),
            "{}: {} simulates nothing, and takes {}", name, *allowed.begin(),
            allowed.size() == 1 ? "no other flag" : "a machine alone");
  }
}

struct SimFiles {
  std::vector<FlagFile> outputs;
  std::vector<FlagFile> inputs;
};

// All files that the flags name, with so many ranks' traces of --chakra, which check_chakra_folder tries.
SimFiles files_of(const Sim& sim, int num_traces) {
  SimFiles files{{{"--json", sim.options.json}, trace_file(sim.options), tuner_file(sim.options)},
                 input_files(sim.options)};
  for (const std::string& file : chakra_files(sim.chakra, num_traces)) {
    files.outputs.push_back({.flag = "--chakra", .path = file, .in_pieces = false, .untried = true});
  }
  files.inputs.push_back(machine_file(sim.machine));
  files.inputs.push_back({"--compare", sim.compare});
  for (const std::string& file : sim.files) files.inputs.push_back({"the plan's file", file});
  return files;
}

// Flags that would mean nothing.
void check_flags(const Sim& sim, const CLI::App& verb) {
  const auto refuse = [&](const auto& flags, const char* why) {
    for (const char* flag : flags) require(verb.count(flag) == 0, "{}: {}", flag, why);
  };
  if (sim.list) want_only(verb, {"--list"});
  if (sim.show) want_only(verb, {"--show", "--machine", "--topology", "--set"});
  // What is read is not written over. How many traces there are, the machine says later.
  const SimFiles files = files_of(sim, 0);
  check_apart(files.outputs, files.inputs);
  if (sim.bytes) {
    refuse(kPlanFlags, "--bytes asks for collectives alone, which have none");
    refuse(std::array{"--ranks"}, "--bytes asks for collectives of all devices");
  } else {
    refuse(std::array{"--algorithm"}, "goes with --bytes");
  }
  if (!sim.files.empty()) {
    refuse(kPlanFlags, "a plan from a file has its own");
    refuse(std::array{"--ranks"}, "a plan from a file has its own");
    require(sim.options.operators.empty(), "{}: name files of plans or operators, not both",
            fmt::join(sim.options.operators, " "));
  }
  if (!sim.compare.empty()) {
    constexpr const char* kWhy = "--compare takes everything from its file";
    refuse(kPlanFlags, kWhy);
    refuse(std::array{"operator", "--bytes", "--sweep", "--trace", "--chakra", "--ranks"}, kWhy);
  }
}

void sim_verb(Sim sim) {
  if (sim.list) return print(list_of_machines());
  const Machine machine = machine_of(sim, take_machine_values(sim.options));
  require((!sim.bytes && sim.compare.empty() && sim.files.empty() && !sim.show) || sim.options.set.empty(),
          "--set {}: there is no knob to set here", fmt::join(sim.options.set, ", "));
  if (sim.show) return print(json_text(machine, 2) + "\n");
  const int num_traces = std::min(sim.ranks_given ? sim.options.ranks : num_devices(machine), num_devices(machine));
  const SimFiles files = files_of(sim, num_traces);
  check_files(files.outputs, files.inputs);
  check_chakra_folder(sim.chakra, num_traces);
  if (!sim.compare.empty()) return compare_with(sim.compare, machine, sim.options.json);
  require(!sim.options.operators.empty() || !sim.files.empty(),
          "name an operator, a collective or the file of a plan, or give --compare, --list or --show");
  simulate_all(sim, machine);
}

// {} are the collectives.
constexpr const char* kFooter =
    R"(With --bytes the names are collectives alone: {}; S is what each
device brings (all_gather: its shard). A row is a schedule with the first of its configs, and --set; --schedule auto
finds the best of all schedules' configs. Columns are those of `tilewire bench`, but for seq us: the fastest of all
configs of `sequential`, in any order of sums, as the line below the table says. docs/simulator.md says what is
modelled, docs/chakra.md what --chakra writes.

Examples:
  tilewire sim --list
  tilewire sim all_gather_gemm -m 8192 -n 49152 -k 12288 --machine h200x4
  tilewire sim gemm_reduce_scatter -m 4096 -n 8192 -k 8192 --machine mi300x_mesh8 --schedule auto --trace t.json
  tilewire sim all_reduce --bytes 1048576 --topology ring:8 --set links.bandwidth_GBps=64 --algorithm ring
  tilewire sim gemm_all_reduce -m 1024 -n 8192 -k 8192 --machine h200x4 --sweep links.bandwidth_GBps=100:400:100
  tilewire sim gemm_reduce_scatter -m 4096 -n 8192 -k 8192 --machine h200x4 --schedule fused --chakra traces
  tilewire sim plan.json --machine h200x4
  tilewire sim --machine h200x4 --compare bench/results/peers_x4.json
  tilewire sim t3 --json t3.json)";

}  // namespace

void add_sim(CLI::App& app) {
  auto sim = std::make_shared<Sim>();
  Options& options = sim->options;
  CLI::App* verb = app.add_subcommand("sim", "Simulate plans on a machine that is described by numbers");
  verb->footer(fmt::format(kFooter, collective_names()));
  verb->add_option("operator", options.operators,
                   "Operators, as in bench; with --bytes collectives; or plans that `tilewire plan --json` wrote")
      ->type_name("NAME|FILE");
  const std::string group = "Machine";
  verb->add_option("--machine", sim->machine, "A known machine (--list), or a JSON file")
      ->type_name("NAME|FILE")
      ->group(group);
  verb->add_option("--topology", sim->topology,
                   "A network alone: ring:8, fully_connected:8, switch:16, torus2d:4x4, two_level:2x4")
      ->type_name("KIND:SIZE")
      ->group(group);
  verb->add_option("--sweep", sim->sweeps, "Values of a machine, from:to:step or a,b,c; repeated: their grid")
      ->type_name("KEY=VALUES")
      ->group(group);
  verb->add_flag("--list", sim->list, "Print the known machines")->group(group);
  verb->add_flag("--show", sim->show, "Print the machine as JSON, with the source of each number")->group(group);
  verb->add_option("--bytes", sim->bytes_text,
                   "A collective alone: bytes that each device brings, as 1048576, 1e6, 64KiB or 2MB")
      ->type_name("S");
  verb->add_option("--algorithm", sim->algorithm, known_names<CollectiveAlgorithm>() + " (default: ring)")
      ->type_name("NAME");
  verb->add_option("--compare", sim->compare, "Predict the rows of a bench's JSON, and print both")->type_name("FILE");
  add_problem_flags(*verb, options);
  add_schedule_flags(*verb, options, "all");
  verb->get_option("--set")->description(
      "Set a knob (--set tile_m=64) or a value of the machine (--set links.latency_ns=500)");
  verb->get_option("--schedule")
      ->description("A schedule, all of them, or auto: the fastest of all their candidates (default: all)");
  add_configs_flag(*verb, options);
  verb->add_option("--ranks", options.ranks, "Number of ranks (default: the machine's devices)")
      ->type_name("N")
      ->group("Machine");
  add_json_flag(
      *verb, options,
      "Write {machine, rows, refused, anomalies} to a file, or - for standard output (then without the table)");
  verb->add_option("--trace", options.trace, "Write a Chrome trace of all rows, side by side")->type_name("FILE");
  verb->add_option("--chakra", sim->chakra, "Write the plan as execution traces, and the machine, for ASTRA-sim")
      ->type_name("DIR");
  add_sim_t3(*verb);
  add_sim_claims(*verb);
  verb->callback([sim, verb, &options] {
    if (!verb->get_subcommands().empty()) return;  // it has done everything
    sim->ranks_given = verb->count("--ranks") > 0;
    if (verb->count("--bytes") > 0) {
      sim->bytes = bytes_of("--bytes", sim->bytes_text);
    } else {
      sim->files = take_files(options.operators);
    }
    check_flags(*sim, *verb);
    require(sim->options.configs.empty() || verb->count("--schedule") == 0, "--schedule: --configs names schedules");
    sim_verb(*sim);
  });
}

}  // namespace tilewire::cli
