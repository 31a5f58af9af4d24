// The flags of `tilewire sim` that choose what is simulated, and the rows that they give.
// Called by sim.cpp, and by sweep_verb.cpp and chakra_verb.cpp of studies/.
#include "cli/sim_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/all_cores.hpp"
#include "cli/machine_values.hpp"
#include "cli/plan_files.hpp"
#include "cli/traces.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire::cli {
namespace {

// The key of --set has a dot for values of a machine, and none for knobs.
std::vector<std::string> take_machine_values(Options& options) {
  std::vector<std::string> values;
  std::erase_if(options.set, [&](const std::string& set) {
    const bool machine = set.substr(0, set.find('=')).find('.') != std::string::npos;
    if (machine) values.push_back(set);
    return machine;
  });
  return values;
}

struct PlanFile {
  std::string path{};
  Plan plan{};
};

// One simulation job: a collective, a plan, or a problem with all its rows, on one machine.
struct Job {
  size_t machine = 0;
  std::optional<CollectiveRequest> collective{};
  const PlanFile* file = nullptr;
  Problem problem{};
};

// The options on a machine: without --ranks as many ranks as it has devices.
Options options_on(const SimRequest& request, const Machine& machine) {
  Options options = request.options;
  if (!request.ranks_given) options.ranks = num_devices(machine);
  return options;
}

std::vector<Job> jobs_of(const SimRequest& request, const Machine& machine, const std::vector<PlanFile>& files) {
  std::vector<Job> jobs;
  for (const PlanFile& file : files) jobs.push_back({.file = &file});
  if (!files.empty()) return jobs;
  if (request.bytes) {
    const auto algorithm = parse<CollectiveAlgorithm>(request.algorithm, "--algorithm");
    for (const std::string& name : request.options.operators)
      jobs.push_back({.collective = CollectiveRequest{collective_of(name), algorithm, *request.bytes}});
    return jobs;
  }
  const Options options = options_on(request, machine);
  check_names(options);
  for (const Problem& problem : problems_of(options)) jobs.push_back({.problem = problem});
  return jobs;
}

std::vector<Simulated> do_job(const SimRequest& request, const Job& job, const Machine& machine) {
  std::vector<Simulated> rows;
  if (job.collective) {
    rows.push_back(simulate_collective(*job.collective, machine));
  } else if (job.file != nullptr) {
    rows.push_back(simulate_plan(job.file->path, job.file->plan, machine));
  } else {
    const Options options = options_on(request, machine);
    rows = simulate_operator(options, job.problem, entries_of(options), machine);
  }
  for (Simulated& made : rows) {
    if (request.options.json.empty()) made.row.erase("lanes");
    if (request.options.trace.empty()) made.run.simulation = {};
    if (request.options.trace.empty() && !request.keeps_plans) made.run.plan = {};
  }
  return rows;
}

// Write the trace if --trace asks for it. Returns text about it.
std::string write_trace(const SimRequest& request, const std::vector<Simulated>& rows) {
  if (request.options.trace.empty()) return "";
  TraceFile traces;
  for (const Simulated& made : rows) {
    if (made.refused.empty()) traces.add(made.title, made.run.plan, made.run.simulation.trace);
  }
  traces.write(request.options.trace);
  return traces.summary();
}

}  // namespace

void add_request_names(CLI::App& verb, SimRequest& request) {
  verb.add_option("operator", request.options.operators,
                  "Operators, as in bench; with --bytes collectives; or plans that `tilewire plan --json` wrote")
      ->type_name("NAME|FILE");
}

void add_machine_flags(CLI::App& verb, SimRequest& request) {
  const std::string group = "Machine";
  verb.add_option("--machine", request.machine, "A known machine (`tilewire sim --list`), or a JSON file")
      ->type_name("NAME|FILE")
      ->group(group);
  verb.add_option("--topology", request.topology,
                  "A network alone: ring:8, fully_connected:8, switch:16, torus2d:4x4, two_level:2x4")
      ->type_name("KIND:SIZE")
      ->group(group);
}

void add_bytes_flags(CLI::App& verb, SimRequest& request) {
  verb.add_option("--bytes", request.bytes_text,
                  "A collective alone: bytes that each device brings, as 1048576, 1e6, 64KiB or 2MB")
      ->type_name("S");
  verb.add_option("--algorithm", request.algorithm, known_names<CollectiveAlgorithm>() + " (default: ring)")
      ->type_name("NAME");
}

void add_plan_flags(CLI::App& verb, SimRequest& request) {
  Options& options = request.options;
  add_problem_flags(verb, options);
  add_schedule_flags(verb, options, "all");
  verb.get_option("--set")->description(
      "Set a knob (--set tile_m=64) or a value of the machine (--set links.latency_ns=500)");
  verb.get_option("--schedule")
      ->description("A schedule, all of them, or auto: the fastest of all their candidates (default: all)");
  add_configs_flag(verb, options);
  verb.add_option("--ranks", options.ranks, "Number of ranks (default: the machine's devices)")
      ->type_name("N")
      ->group("Machine");
}

void add_trace_flag(CLI::App& verb, SimRequest& request) {
  verb.add_option("--trace", request.options.trace, "Write a Chrome trace of all rows, side by side")
      ->type_name("FILE");
}

void read_flags(const CLI::App& verb, SimRequest& request) {
  request.ranks_given = verb.count("--ranks") > 0;
  if (verb.count("--bytes") > 0) {
    request.bytes = bytes_of("--bytes", request.bytes_text);
  } else {
    request.files = take_files(request.options.operators);
  }
  request.machine_values = take_machine_values(request.options);
}

RequestFiles files_of(const SimRequest& request) {
  RequestFiles files{{{"--json", request.options.json}, trace_file(request.options), tuner_file(request.options)},
                     input_files(request.options)};
  files.inputs.push_back(machine_file(request.machine));
  for (const std::string& file : request.files) files.inputs.push_back({"the plan's file", file});
  return files;
}

void refuse_flags(const CLI::App& verb, const std::vector<std::string>& flags, const char* why) {
  for (const std::string& flag : flags) require(verb.count(flag) == 0, "{}: {}", flag, why);
}

void refuse_plan_flags(const CLI::App& verb, const char* why) {
  refuse_flags(verb, {"-m",         "-n",           "-k",          "--shapes",   "--model",
                      "--tokens",   "--dtype",      "--out-dtype", "--b-layout", "--reduction",
                      "--bias",     "--epilogue",   "--norm",      "--norm-eps", "--norm-out-dtype",
                      "--gathered", "--allow-tf32", "--arena",     "--schedule", "--configs"},
               why);
}

void refuse_knobs(const SimRequest& request) {
  const std::vector<std::string>& set = request.options.set;
  require(set.empty(), "--set {}: no plan here has knobs", fmt::join(set, ", "));
}

void check_request(const CLI::App& verb, const SimRequest& request) {
  if (request.bytes) {
    refuse_plan_flags(verb, "--bytes asks for collectives alone, which have none");
    refuse_flags(verb, {"--ranks"}, "--bytes asks for collectives of all devices");
  } else {
    refuse_flags(verb, {"--algorithm"}, "goes with --bytes");
  }
  if (!request.files.empty()) {
    refuse_plan_flags(verb, "a plan from a file has its own");
    refuse_flags(verb, {"--ranks"}, "a plan from a file has its own");
    require(request.options.operators.empty(), "{}: name files of plans or operators, not both",
            fmt::join(request.options.operators, " "));
  }
  if (request.bytes || !request.files.empty()) refuse_knobs(request);
  require(request.options.configs.empty() || verb.count("--schedule") == 0, "--schedule: --configs names schedules");
}

Machine machine_of(const SimRequest& request) {
  require(request.machine.empty() != request.topology.empty(), "give one of --machine (known: {}) and --topology",
          fmt::join(machine_names(), ", "));
  return with_values(request.machine.empty() ? bare_network(request.topology) : load_machine(request.machine),
                     request.machine_values);
}

void require_names(const SimRequest& request, const char* others) {
  require(!request.options.operators.empty() || !request.files.empty(),
          "name an operator, a collective or the file of a plan{}", others);
}

size_t num_rows(const SimRequest& request, const Machine& machine) {
  if (!request.files.empty()) return request.files.size();
  return jobs_of(request, machine, {}).size() * (request.bytes ? 1 : entries_of(request.options).size());
}

std::vector<std::vector<Simulated>> simulate_on(const std::vector<Machine>& machines, const SimRequest& request) {
  std::vector<PlanFile> files(request.files.size());
  on_all_cores(files.size(), "plans", [&](size_t i) {
    files[i] = {request.files[i], load_proven_plan(request.files[i])};
  });
  std::vector<Job> jobs;
  for (size_t i = 0; i < machines.size(); ++i) {
    for (Job& job : jobs_of(request, machines[i], files)) {
      job.machine = i;
      jobs.push_back(std::move(job));
    }
  }
  std::vector<std::vector<Simulated>> done(jobs.size());
  on_all_cores(jobs.size(), "problems",
               [&](size_t i) { done[i] = do_job(request, jobs[i], machines[jobs[i].machine]); });
  std::vector<std::vector<Simulated>> rows(machines.size());
  for (size_t i = 0; i < jobs.size(); ++i) std::ranges::move(done[i], std::back_inserter(rows[jobs[i].machine]));
  return rows;
}

nlohmann::json json_of(const Machine& machine, const std::vector<Simulated>& rows) {
  nlohmann::json result = {
      {"machine", machine}, {"rows", nlohmann::json::array()}, {"refused", nlohmann::json::array()}};
  for (const Simulated& made : rows) result[made.refused.empty() ? "rows" : "refused"].push_back(made.row);
  return result;
}

void write_and_print(const SimRequest& request, const nlohmann::json& result, const std::vector<Simulated>& rows,
                     std::string text) {
  // NOTE: files first, so that a table that cannot be printed loses nothing else.
  if (!request.options.json.empty()) write_file(request.options.json, json_text(result, 1) + "\n");
  text += write_trace(request, rows);
  if (request.options.json != "-") print(text);
  require(!result["rows"].empty(), "every schedule refuses: {}", rows.front().refused);
}

}  // namespace tilewire::cli
