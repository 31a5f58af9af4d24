// tilewire sim: predicts the times of plans on a machine that is described by numbers.
// Called by main.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <memory>

#include "cli/sim_compare.hpp"
#include "cli/sim_request.hpp"
#include "cli/sim_table.hpp"
#include "cli/verbs.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire::cli {
namespace {

struct Sim {
  SimRequest request;
  std::string compare;
  bool list = false;
  bool show = false;
};

std::string list_of_machines() {
  std::string text;
  for (const std::string& name : machine_names()) {
    text += fmt::format("{:<16} {}\n", name, load_machine(name).summary);
  }
  return text;
}

// For flags that simulate nothing: refuse all flags but `allowed`.
void want_only(const CLI::App& verb, std::initializer_list<std::string> allowed) {
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = option->get_name();
    require(option->count() == 0 || std::ranges::find(allowed, name) != allowed.end(),
            "{}: {} simulates nothing, and takes {}", name, *allowed.begin(),
            allowed.size() == 1 ? "no other flag" : "a machine alone");
  }
}

RequestFiles files_of(const Sim& sim) {
  RequestFiles files = files_of(sim.request);
  files.inputs.push_back({"--compare", sim.compare});
  return files;
}

// Refuse flags that mean nothing.
void check_flags(const Sim& sim, const CLI::App& verb) {
  if (sim.list) want_only(verb, {"--list"});
  if (sim.show) want_only(verb, {"--show", "--machine", "--topology", "--set"});
  // An output must not overwrite an input.
  const RequestFiles files = files_of(sim);
  check_apart(files.outputs, files.inputs);
  check_request(verb, sim.request);
  if (!sim.compare.empty()) {
    constexpr const char* kWhy = "--compare takes everything from its file";
    refuse_plan_flags(verb, kWhy);
    refuse_flags(verb, {"operator", "--bytes", "--trace", "--ranks"}, kWhy);
  }
  if (!sim.compare.empty() || sim.show) refuse_knobs(sim.request);
}

void simulate_all(const SimRequest& request, const Machine& machine) {
  const std::vector<Simulated> rows = std::move(simulate_on({machine}, request).front());
  std::string text = machine.name + "\n" + table_of(rows);
  for (const Simulated& each : rows) {
    if (!request.files.empty()) text += fmt::format("\n{}\n{}", each.title, loads_text(each.row));
  }
  write_and_print(request, json_of(machine, rows), rows, std::move(text));
}

void sim_verb(const Sim& sim) {
  if (sim.list) return print(list_of_machines());
  const Machine machine = machine_of(sim.request);
  if (sim.show) return print(json_text(machine, 2) + "\n");
  const RequestFiles files = files_of(sim);
  check_files(files.outputs, files.inputs);
  if (!sim.compare.empty()) return compare_with(sim.compare, machine, sim.request.options.json);
  require_names(sim.request, ", or give --compare, --list or --show");
  simulate_all(sim.request, machine);
}

// {}: the names of collectives.
constexpr const char* kFooter =
    R"(With --bytes the names are collectives alone: {}; S is what each
device brings (all_gather: its shard). A row is a schedule with the first of its configs, and --set; --schedule auto
finds the best of all schedules' configs. Columns are those of `tilewire bench`, but for seq us: the fastest of all
configs of `sequential`, in any order of sums, as the line below the table says. docs/simulator.md says what is
modelled.

Examples:
  tilewire sim --list
  tilewire sim all_gather_gemm -m 8192 -n 49152 -k 12288 --machine h200x4
  tilewire sim gemm_reduce_scatter -m 4096 -n 8192 -k 8192 --machine mi300x_mesh8 --schedule auto --trace t.json
  tilewire sim all_reduce --bytes 1048576 --topology ring:8 --set links.bandwidth_GBps=64 --algorithm ring
  tilewire sim plan.json --machine h200x4
  tilewire sim --machine h200x4 --compare bench/results/peers_x4.json)";

}  // namespace

void add_sim(CLI::App& app) {
  auto sim = std::make_shared<Sim>();
  SimRequest& request = sim->request;
  CLI::App* verb = app.add_subcommand("sim", "Simulate plans on a machine that is described by numbers");
  verb->footer(fmt::format(kFooter, collective_names()));
  add_request_names(*verb, request);
  add_machine_flags(*verb, request);
  verb->add_flag("--list", sim->list, "Print the known machines")->group("Machine");
  verb->add_flag("--show", sim->show, "Print the machine as JSON, with the source of each number")->group("Machine");
  add_bytes_flags(*verb, request);
  verb->add_option("--compare", sim->compare, "Predict the rows of a bench's JSON, and print both")->type_name("FILE");
  add_plan_flags(*verb, request);
  add_json_flag(*verb, request.options,
                "Write {machine, rows, refused} to a file, or - for standard output (then without the table)");
  add_trace_flag(*verb, request);
  verb->callback([sim, verb] {
    read_flags(*verb, sim->request);
    check_flags(*sim, *verb);
    sim_verb(*sim);
  });
}

}  // namespace tilewire::cli
