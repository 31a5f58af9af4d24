// Machines: from JSON, from `--topology`, changed by `--set`, and the rules that they keep.
// Called by the command line and simulate.
#include "tilewire/machine.hpp"

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>

#include "backends/sim/known_machines.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire {
namespace {

constexpr int kMostDevices = 1024;
constexpr double kNoLimit = 1e9;    // GB/s
constexpr double kMostCache = 1e9;  // MiB
constexpr int64_t kMostCount = 1 << 20;
constexpr double kLongestRequest = 1e6;  // ns

void want_above_zero(const Machine& machine, const char* key, double value) {
  require(std::isfinite(value) && value > 0, "machine {}: {} = {}: want more than 0", machine.name, key, value);
}

void want_no_less_than_zero(const Machine& machine, const char* key, double value) {
  require(std::isfinite(value) && value >= 0, "machine {}: {} = {}: want at least 0", machine.name, key, value);
}

void want_share(const Machine& machine, const char* key, double value) {
  require(value > 0 && value <= 1, "machine {}: {} = {}: want more than 0 and at most 1", machine.name, key, value);
}

void validate_links(const Machine& machine) {
  const Links& links = machine.links;
  const bool two = links.topology == Topology::torus2d || links.topology == Topology::two_level;
  require(std::ssize(links.dims) == (two ? 2 : 1), "machine {}: links.dims has {} sizes, {} wants {}", machine.name,
          links.dims.size(), to_string(links.topology), two ? 2 : 1);
  int64_t devices = 1;
  for (const int size : links.dims) {
    require(size >= 1, "machine {}: links.dims has {}: want at least 1", machine.name, size);
    devices *= size;
    require(devices <= kMostDevices, "machine {}: links.dims make more than {} devices", machine.name, kMostDevices);
  }
  want_above_zero(machine, "links.bandwidth_GBps", links.bandwidth_GBps);
  want_no_less_than_zero(machine, "links.latency_ns", links.latency_ns);
  want_no_less_than_zero(machine, "links.unit_bandwidth_GBps", links.unit_bandwidth_GBps);
  want_share(machine, "links.store_efficiency", links.store_efficiency);
  want_share(machine, "links.add_efficiency", links.add_efficiency);
  want_share(machine, "links.meeting_efficiency", links.meeting_efficiency);
  want_no_less_than_zero(machine, "links.between_latency_ns", links.between_latency_ns);
  want_no_less_than_zero(machine, "links.between_bandwidth_GBps", links.between_bandwidth_GBps);
  if (links.topology == Topology::two_level) {
    want_above_zero(machine, "links.between_bandwidth_GBps", links.between_bandwidth_GBps);
  }
}

void validate_controller(const Machine& machine, const MemoryController& controller) {
  const auto at_least = [&](const char* key, int64_t value, int64_t least) {
    require(value >= least, "machine {}: controller.{} = {}: want at least {}", machine.name, key, value, least);
    require(value <= kMostCount, "machine {}: controller.{} = {}: want at most {}", machine.name, key, value,
            kMostCount);
  };
  at_least("channels", controller.channels, 1);
  at_least("column_bytes", controller.column_bytes, 1);
  at_least("request_bytes", controller.request_bytes, controller.column_bytes);
  at_least("bank_groups", controller.bank_groups, 1);
  at_least("column_clocks", controller.column_clocks, 1);
  at_least("update_clocks", controller.update_clocks, controller.column_clocks);
  at_least("queue", controller.queue, 1);
  at_least("starvation_clocks", controller.starvation_clocks, 0);
  at_least("step_k", controller.step_k, 1);
  want_above_zero(machine, "controller.clock_GHz", controller.clock_GHz);
  const double columns_ns = controller.column_clocks / controller.clock_GHz;
  const double reach =
      static_cast<double>(controller.channels) * controller.bank_groups * controller.column_bytes / columns_ns;
  require(reach >= machine.memory.bandwidth_GBps,
          "machine {}: memory.bandwidth_GBps = {}: the bank groups of controller reach {} GB/s", machine.name,
          machine.memory.bandwidth_GBps, reach);
  const double request_ns =
      static_cast<double>(controller.request_bytes) * controller.channels / machine.memory.bandwidth_GBps;
  require(request_ns <= kLongestRequest, "machine {}: a request takes {} ns of a channel's bus: want at most {}",
          machine.name, request_ns, kLongestRequest);
  want_no_less_than_zero(machine, "controller.latency_ns", controller.latency_ns);
  for (const int threshold : controller.thresholds) at_least("thresholds", threshold, 1);
  require(machine.links.forwarding == Forwarding::cut_through,
          "machine {}: links.forwarding = store_and_forward: a memory controller wants cut_through", machine.name);
}

void validate_tracker(const Machine& machine, const Tracker& tracker) {
  const std::pair<const char*, int> values[] = {{"entries", tracker.entries},
                                                {"ways", tracker.ways},
                                                {"address_bits", tracker.address_bits},
                                                {"counter_bits", tracker.counter_bits},
                                                {"workgroup_bits", tracker.workgroup_bits},
                                                {"wavefront_bits", tracker.wavefront_bits}};
  for (const auto& [key, value] : values)
    require(value >= 1 && value <= kMostCount, "machine {}: tracker.{} = {}: want 1 to {}", machine.name, key, value,
            kMostCount);
  require(std::has_single_bit(static_cast<unsigned>(tracker.entries)),
          "machine {}: tracker.entries = {}: want a power of two, as low bits of workgroups choose one", machine.name,
          tracker.entries);
}

Machine parse_machine(const std::string& text, const std::string& where) {
  try {
    Machine machine = from_json_text<Machine>(text);
    validate(machine);
    return machine;
  } catch (const Error& error) {
    throw Error(error.kind(), where + ": " + error.what());
  }
}

}  // namespace

int num_devices(const Machine& machine) {
  return std::accumulate(machine.links.dims.begin(), machine.links.dims.end(), 1, std::multiplies<>());
}

void validate(const Machine& machine) {
  const ComputeUnits& compute = machine.compute;
  require(compute.units >= 1 && compute.units <= 1 << 16, "machine {}: compute.units = {}: want 1 to {}", machine.name,
          compute.units, 1 << 16);
  want_above_zero(machine, "compute.clock_GHz", compute.clock_GHz);
  want_above_zero(machine, "compute.flops_per_clock_per_unit", compute.flops_per_clock_per_unit);
  want_above_zero(machine, "compute.fp32_speed", compute.fp32_speed);
  want_above_zero(machine, "compute.tf32_speed", compute.tf32_speed);
  want_share(machine, "compute.efficiency", compute.efficiency);
  want_no_less_than_zero(machine, "compute.tile_ns", compute.tile_ns);
  for (const auto& [shape, efficiency] : compute.tile_efficiency) {
    want_share(machine, ("compute.tile_efficiency." + shape).c_str(), efficiency);
  }
  require(compute.side_units >= 0 && compute.side_units <= compute.units,
          "machine {}: compute.side_units = {}: want 0 to compute.units = {}", machine.name, compute.side_units,
          compute.units);
  want_above_zero(machine, "memory.bandwidth_GBps", machine.memory.bandwidth_GBps);
  want_no_less_than_zero(machine, "memory.unit_bandwidth_GBps", machine.memory.unit_bandwidth_GBps);
  want_no_less_than_zero(machine, "memory.cache_MiB", machine.memory.cache_MiB);
  require(machine.memory.cache_MiB <= kMostCache, "machine {}: memory.cache_MiB = {}: want at most {}", machine.name,
          machine.memory.cache_MiB, kMostCache);
  require(machine.copy.engines >= 1, "machine {}: copy.engines = {}: want at least 1", machine.name,
          machine.copy.engines);
  want_no_less_than_zero(machine, "copy.issue_ns", machine.copy.issue_ns);
  want_no_less_than_zero(machine, "copy.gate_ns", machine.copy.gate_ns);
  validate_links(machine);
  if (machine.controller) validate_controller(machine, *machine.controller);
  if (machine.tracker) validate_tracker(machine, *machine.tracker);
  const Overheads& overheads = machine.overheads;
  want_no_less_than_zero(machine, "overheads.launch_ns", overheads.launch_ns);
  want_no_less_than_zero(machine, "overheads.signal_ns", overheads.signal_ns);
  want_no_less_than_zero(machine, "overheads.library_ns", overheads.library_ns);
  want_no_less_than_zero(machine, "overheads.collective_ns", overheads.collective_ns);
  want_share(machine, "overheads.collective_efficiency", overheads.collective_efficiency);
  want_above_zero(machine, "overheads.library_efficiency", overheads.library_efficiency);
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const sim::KnownMachine& known : sim::known_machines()) names.emplace_back(known.name);
  return names;
}

Machine load_machine(const std::string& name_or_path) {
  for (const sim::KnownMachine& known : sim::known_machines()) {
    if (name_or_path == known.name) return parse_machine(known.json, name_or_path);
  }
  std::ifstream file(name_or_path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || file.bad()) {
    fail(ErrorKind::invalid_input, "machine {}: no file of that name that can be read, and the known machines are {}",
         name_or_path, fmt::join(machine_names(), ", "));
  }
  return parse_machine(text.str(), name_or_path);
}

Machine bare_network(const std::string& text) {
  const size_t colon = text.find(':');
  require(colon != std::string::npos, "topology {}: want KIND:SIZE or KIND:AxB, as ring:8 or torus2d:4x4", text);
  const std::string kind = text.substr(0, colon);
  Machine machine{.name = text};
  machine.links = {.topology = kind == "switch" ? Topology::switched : parse<Topology>(kind),
                   .bandwidth_GBps = 100,
                   .latency_ns = 500,
                   .forwarding = Forwarding::store_and_forward,
                   .between_bandwidth_GBps = 100,
                   .between_latency_ns = 500};
  std::istringstream sizes(text.substr(colon + 1));
  for (std::string size; std::getline(sizes, size, 'x');) {
    const bool number = !size.empty() && size.size() <= 6 && size.find_first_not_of("0123456789") == std::string::npos;
    require(number, "topology {}: '{}' is no number of devices", text, size);
    machine.links.dims.push_back(std::stoi(size));
  }
  machine.compute = {.units = 1, .clock_GHz = kNoLimit, .flops_per_clock_per_unit = kNoLimit};
  machine.memory.bandwidth_GBps = kNoLimit;
  machine.copy.engines = kMostDevices;
  validate(machine);
  return machine;
}

void set_value(Machine& machine, const std::string& key, const std::string& value) {
  const size_t dot = key.find('.');
  require(dot != std::string::npos, "machine: '{}' is no key: want PART.NAME, as links.latency_ns", key);
  const std::string part = key.substr(0, dot);
  const nlohmann::json parsed = nlohmann::json::parse(value, nullptr, false);
  nlohmann::json json = machine;
  require(!json.contains(part) || (json[part].is_object() && part != "sources"), "machine: {} has no values to set",
          part);
  json[part][key.substr(dot + 1)] = parsed.is_discarded() ? nlohmann::json(value) : parsed;
  machine = json.get<Machine>();
  machine.sources[key] = "set by the user";
}

}  // namespace tilewire
