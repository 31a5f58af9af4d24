// Makes machines from JSON and from `--topology`, and changes them by `--set`. machine_rules.cpp has the rules.
// Called by the command line, the simulator and tests.
#include "tilewire/sim/machine.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>

#include "backends/sim/known_machines.hpp"
#include "backends/sim/network.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "core/text_file.hpp"
#include "tilewire/json.hpp"

namespace tilewire {
namespace {

constexpr double kNoLimit = 1e9;  // GB/s

// Check that the file has the keys without a default.
void check_needed(const nlohmann::json& json, const Machine& machine) {
  const auto need = [&](const char* part, const char* key, const char* why) {
    const auto found = json.find(part);
    require(found != json.end() && found->contains(key), "machine {}: {}.{} is missing: {} it", machine.name, part, key,
            why);
  };
  constexpr const char* kAll = "every machine has";
  for (const char* key : {"units", "clock_GHz", "flops_per_clock_per_unit"}) need("compute", key, kAll);
  need("memory", "bandwidth_GBps", kAll);
  for (const char* key : {"dims", "bandwidth_GBps"}) need("links", key, kAll);
  if (machine.links.topology == Topology::two_level)
    need("links", "between_bandwidth_GBps", "links.topology = two_level needs");
}

// Check that each source belongs to a key of the machine.
void check_sources(const Machine& machine) {
  const nlohmann::json json = machine;
  for (const auto& [key, source] : machine.sources) {
    const size_t dot = key.find('.');
    const auto part = json.find(key.substr(0, dot));
    const bool known = dot != std::string::npos && part != json.end() && part.key() != "sources" && part->is_object() &&
                       part->contains(key.substr(dot + 1));
    require(known, "machine {}: sources has '{}': the machine has no such key", machine.name, key);
  }
}

// Parse a machine. Its name defaults to the name of the file.
Machine parse_machine(const std::string& text, const std::string& where) {
  try {
    const nlohmann::json json = parse_json(text, "machine");
    auto machine = json.get<Machine>();
    if (machine.name.empty()) machine.name = valid_utf8(std::filesystem::path(where).stem().string());
    check_needed(json, machine);
    validate(machine);
    check_sources(machine);
    return machine;
  } catch (const Error& error) {
    const bool malformed = std::string(error.what()).find("malformed JSON") != std::string::npos &&
                           (text.find("NaN") != text.npos || text.find("Infinity") != text.npos);
    throw Error(error.kind(), where + ": " + error.what() + (malformed ? "; JSON has no NaN and no Infinity" : ""));
  }
}

// The text of Topology::switched is "switch" here.
Topology topology_of(const std::string& text, const std::string& kind) {
  static const std::map<std::string, Topology> kKinds{
      {"ring", Topology::ring},       {"fully_connected", Topology::fully_connected},
      {"switch", Topology::switched}, {"switched", Topology::switched},
      {"torus2d", Topology::torus2d}, {"two_level", Topology::two_level}};
  const auto found = kKinds.find(kind);
  require(found != kKinds.end(), "topology {}: '{}' is none of ring, fully_connected, switch, torus2d, two_level", text,
          kind);
  return found->second;
}

// "8" or "4x4"
std::vector<int> sizes_of(const std::string& text, const std::string& sizes) {
  std::vector<int> dims;
  std::istringstream parts(sizes);
  for (std::string size; std::getline(parts, size, 'x');) {
    const bool number = !size.empty() && size.size() <= 6 && size.find_first_not_of("0123456789") == std::string::npos;
    require(number, "topology {}: '{}' is no size: want numbers of devices, as 8 or 4x4", text, sizes);
    dims.push_back(std::stoi(size));
  }
  require(!sizes.empty() && sizes.back() != 'x', "topology {}: want numbers of devices after the colon, as 8 or 4x4",
          text);
  return dims;
}

}  // namespace

int num_devices(const Machine& machine) {
  return std::accumulate(machine.links.dims.begin(), machine.links.dims.end(), 1, std::multiplies<>());
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
  const TextFile file = read_text_file(name_or_path);
  if (file.missing()) {
    fail(ErrorKind::invalid_input, "machine {}: no file of that name that can be read, and the known machines are {}",
         name_or_path, fmt::join(machine_names(), ", "));
  }
  require(file.call.ok(), "machine {}: {}", name_or_path, file.why());
  return parse_machine(file.text, name_or_path);
}

Machine bare_network(const std::string& text) {
  const size_t colon = text.find(':');
  require(colon != std::string::npos, "topology {}: want KIND:SIZE or KIND:AxB, as ring:8 or torus2d:4x4", text);
  const std::string kind = text.substr(0, colon);
  Machine machine{.name = text};
  machine.links = {.topology = topology_of(text, kind),
                   .bandwidth_GBps = 100,
                   .latency_ns = 500,
                   .forwarding = Forwarding::store_and_forward,
                   .between_bandwidth_GBps = 100,
                   .between_latency_ns = 500};
  machine.links.dims = sizes_of(text, text.substr(colon + 1));
  machine.compute = {.units = 1, .clock_GHz = kNoLimit, .flops_per_clock_per_unit = kNoLimit};
  machine.memory.bandwidth_GBps = kNoLimit;
  machine.copy.engines = sim::kMostDevices;
  validate(machine);
  return machine;
}

void set_value(Machine& machine, const std::string& key, const std::string& value) {
  const size_t dot = key.find('.');
  require(dot != std::string::npos, "machine: '{}' is no key: want PART.NAME, as links.latency_ns", key);
  const std::string part = key.substr(0, dot);
  nlohmann::json json = machine;
  require(!json.contains(part) || (json[part].is_object() && part != "sources"), "machine: {} has no values to set",
          part);
  json[part][key.substr(dot + 1)] = json_or_text(value);
  machine = json.get<Machine>();
  machine.sources[key] = "set by the user";
}

}  // namespace tilewire
