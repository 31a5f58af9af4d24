// tilewire-studies chakra: one plan as execution traces, and its machine as ASTRA-sim's configuration.
// Called by main.cpp.
#include <algorithm>
#include <memory>

#include "cli/sim_request.hpp"
#include "cli/sim_table.hpp"
#include "core/text.hpp"
#include "studies/chakra_files.hpp"
#include "studies/verbs.hpp"

namespace tilewire::cli {
namespace {

struct Chakra {
  SimRequest request{.keeps_plans = true};
  std::string out;
};

// Number of traces of a plan from a file: --ranks, at most the machine's devices; by default all devices.
int num_traces(const SimRequest& request, const Machine& machine) {
  const int devices = num_devices(machine);
  return request.ranks_given ? std::min(request.options.ranks, devices) : devices;
}

void chakra_verb(const Chakra& chakra) {
  const SimRequest& request = chakra.request;
  const Machine machine = machine_of(request);
  RequestFiles files = files_of(request);
  for (const std::string& file : chakra_files(chakra.out, num_traces(request, machine))) {
    files.outputs.push_back({.flag = "--out", .path = file, .untried = true});
  }
  check_files(files.outputs, files.inputs);
  check_chakra_folder(chakra.out, num_traces(request, machine));
  require_names(request, "");
  const size_t plans = num_rows(request, machine);
  require(plans == 1, "the flags name {} plans; name one schedule and one shape", plans);
  const std::vector<Simulated> rows = std::move(simulate_on({machine}, request).front());
  require(rows.front().refused.empty(), "{}", rows.front().refused);
  const std::string written = write_chakra(chakra.out, rows.front().run.plan, machine);
  print(machine.name + "\n" + table_of(rows) + written);
}

constexpr const char* kChakraFooter =
    R"(The flags name one plan: one schedule (auto counts as one) and one shape, one collective with --bytes, or one
file. Prints its row as `tilewire sim` does, and the command that runs the traces. docs/chakra.md says what they are.

Examples:
  tilewire-studies chakra gemm_reduce_scatter -m 4096 -n 8192 -k 8192 --machine h200x4 --schedule fused --out traces
  tilewire-studies chakra all_reduce --bytes 1MiB --topology ring:8 --out traces
  tilewire-studies chakra plan.json --machine h200x4 --out traces)";

}  // namespace

void add_chakra(CLI::App& app) {
  auto chakra = std::make_shared<Chakra>();
  SimRequest& request = chakra->request;
  CLI::App* verb = app.add_subcommand("chakra", "Write a plan as execution traces, and the machine, for ASTRA-sim");
  verb->footer(kChakraFooter);
  add_request_names(*verb, request);
  add_machine_flags(*verb, request);
  add_bytes_flags(*verb, request);
  add_plan_flags(*verb, request);
  verb->add_option("--out", chakra->out, "The folder to write to; made where there is none")
      ->type_name("DIR")
      ->required();
  verb->callback([chakra, verb] {
    read_flags(*verb, chakra->request);
    check_request(*verb, chakra->request);
    chakra_verb(*chakra);
  });
}

}  // namespace tilewire::cli
