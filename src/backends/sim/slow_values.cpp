// Rates, shares and times of a machine beside usual ones.
// Called by simulate.cpp.
#include "backends/sim/slow_values.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "core/text.hpp"

namespace tilewire::sim {
namespace {

constexpr size_t kMost = 3;        // values are named
constexpr double kFarSlower = 30;  // than usual

struct Value {
  std::string key;
  double value;
  double slower;  ///< than usual, so many times
};

// 0 is no limit, or none of it.
void add_rate(std::vector<Value>& values, const std::string& key, double value, double usual) {
  if (value > 0) values.push_back({key, value, usual / value});
}

void add_time(std::vector<Value>& values, const std::string& key, double value_ns) {
  constexpr double kUsualNs = 1000;
  values.push_back({key, value_ns, value_ns / kUsualNs});
}

std::vector<Value> values_of(const Machine& machine) {
  std::vector<Value> values;
  const ComputeUnits& compute = machine.compute;
  add_rate(values, "compute.clock_GHz", compute.clock_GHz, 1);
  add_rate(values, "compute.flops_per_clock_per_unit", compute.flops_per_clock_per_unit, 1000);
  add_rate(values, "compute.efficiency", compute.efficiency, 1);
  add_rate(values, "compute.fp32_speed", compute.fp32_speed, 0.5);
  add_rate(values, "compute.tf32_speed", compute.tf32_speed, 0.5);
  for (const auto& [shape, share] : compute.tile_efficiency)
    add_rate(values, "compute.tile_efficiency." + shape, share, 1);
  add_time(values, "compute.tile_ns", compute.tile_ns);
  add_rate(values, "memory.bandwidth_GBps", machine.memory.bandwidth_GBps, 1000);
  add_rate(values, "memory.unit_bandwidth_GBps", machine.memory.unit_bandwidth_GBps, 10);
  if (machine.controller) add_time(values, "controller.latency_ns", machine.controller->latency_ns);
  add_time(values, "copy.issue_ns", machine.copy.issue_ns);
  add_time(values, "copy.gate_ns", machine.copy.gate_ns);
  const Links& links = machine.links;
  add_rate(values, "links.bandwidth_GBps", links.bandwidth_GBps, 100);
  add_rate(values, "links.unit_bandwidth_GBps", links.unit_bandwidth_GBps, 10);
  add_rate(values, "links.between_bandwidth_GBps", links.between_bandwidth_GBps, 100);
  add_rate(values, "links.store_efficiency", links.store_efficiency, 1);
  add_rate(values, "links.add_efficiency", links.add_efficiency, 1);
  add_rate(values, "links.meeting_efficiency", links.meeting_efficiency, 1);
  add_time(values, "links.latency_ns", links.latency_ns);
  add_time(values, "links.between_latency_ns", links.between_latency_ns);
  const Overheads& overheads = machine.overheads;
  add_rate(values, "overheads.library_efficiency", overheads.library_efficiency, 1);
  add_rate(values, "overheads.collective_efficiency", overheads.collective_efficiency, 1);
  add_time(values, "overheads.signal_ns", overheads.signal_ns);
  add_time(values, "overheads.library_ns", overheads.library_ns);
  add_time(values, "overheads.collective_ns", overheads.collective_ns);
  return values;
}

}  // namespace

std::string slowest_values(const Machine& machine) {
  std::vector<Value> values = values_of(machine);
  std::ranges::stable_sort(values, std::greater<>(), &Value::slower);
  std::string text;
  for (size_t i = 0; i < kMost && (i == 0 || values[i].slower > kFarSlower); ++i)
    text += fmt::format("{}{} = {}", i == 0 ? "" : ", ", values[i].key, values[i].value);
  return text;
}

}  // namespace tilewire::sim
