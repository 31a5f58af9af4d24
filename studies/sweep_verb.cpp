// tilewire-studies sweep: the rows of `tilewire sim` on each machine of a grid.
// Called by main.cpp.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/sim_request.hpp"
#include "cli/sim_table.hpp"
#include "studies/anomalies.hpp"
#include "studies/sweep.hpp"
#include "studies/verbs.hpp"

namespace tilewire::cli {
namespace {

struct Sweep {
  SimRequest request;
  std::vector<std::string> sweeps;
};

// The rows in the order of the points, each with the settings of its point.
std::vector<Simulated> rows_of(std::vector<SweepPoint> points, const SimRequest& request) {
  std::vector<Machine> machines;
  for (SweepPoint& point : points) machines.push_back(std::move(point.machine));
  std::vector<std::vector<Simulated>> by_point = simulate_on(machines, request);
  std::vector<Simulated> rows;
  for (size_t i = 0; i < points.size(); ++i) {
    for (Simulated& made : by_point[i]) {
      made.row["settings"] = points[i].settings;
      for (const auto& [key, value] : points[i].settings) made.title += fmt::format(", {} = {}", key, value);
      rows.push_back(std::move(made));
    }
  }
  return rows;
}

void sweep_verb(const Sweep& sweep) {
  const SimRequest& request = sweep.request;
  const Machine machine = machine_of(request);
  const RequestFiles files = files_of(request);
  check_files(files.outputs, files.inputs);
  require_names(request, "");
  const std::vector<Simulated> rows = rows_of(sweep_points(machine, sweep.sweeps), request);
  nlohmann::json result = json_of(machine, rows);
  result["anomalies"] = anomalies_of(result["rows"]);
  const std::string table = machine.name + "\n" + table_of(rows, swept_keys(sweep.sweeps));
  write_and_print(request, result, rows, table + anomalies_text(result["anomalies"]));
}

constexpr const char* kSweepFooter =
    R"(Rows and columns are those of `tilewire sim`, for every combination of the values. A plan can become slower on a
better machine: a line below the table counts the steps in which one does. docs/simulator.md says what is modelled.

Examples:
  tilewire-studies sweep all_reduce --bytes 1MiB --topology ring:8 --sweep links.bandwidth_GBps=50:400:50
  tilewire-studies sweep gemm_all_reduce -m 1024 -n 8192 -k 8192 --machine h200x4 --sweep links.latency_ns=0,350,1000
  tilewire-studies sweep plan.json --machine h200x4 --sweep compute.units=66,132 --sweep links.latency_ns=0,350)";

}  // namespace

void add_sweep(CLI::App& app) {
  auto sweep = std::make_shared<Sweep>();
  SimRequest& request = sweep->request;
  CLI::App* verb = app.add_subcommand("sweep", "Simulate plans on machines that differ in some values");
  verb->footer(kSweepFooter);
  add_request_names(*verb, request);
  add_machine_flags(*verb, request);
  verb->add_option("--sweep", sweep->sweeps, "Values of the machine, from:to:step or a,b,c; repeated: their grid")
      ->type_name("KEY=VALUES")
      ->group("Machine")
      ->required();
  add_bytes_flags(*verb, request);
  add_plan_flags(*verb, request);
  add_json_flag(
      *verb, request.options,
      "Write {machine, rows, refused, anomalies} to a file, or - for standard output (then without the table)");
  add_trace_flag(*verb, request);
  verb->callback([sweep, verb] {
    read_flags(*verb, sweep->request);
    check_request(*verb, sweep->request);
    sweep_verb(*sweep);
  });
}

}  // namespace tilewire::cli
