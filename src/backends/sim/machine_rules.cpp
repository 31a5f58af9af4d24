// Rules of machines: ranges of numbers, and conditions between keys.
// Called by all functions that read or change machines, and by simulate.
#include <algorithm>
#include <bit>
#include <functional>
#include <string>

#include "backends/sim/network.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire {
namespace {

constexpr double kMostCache = 1e9;  // MiB
constexpr int64_t kMostCount = 1 << 20;
constexpr int64_t kMostWays = 256;       // of a Tracker, whose ways are searched linearly
constexpr double kLongestRequest = 1e6;  // ns
// Limits that no real machine exceeds. Outside of them a call could take years, or no time.
constexpr double kLeastRate = 1e-3;  // GB/s, GHz, FLOP per clock
constexpr double kMostRate = 1e9;
constexpr double kLeastShare = 1e-6;
constexpr double kMostSpeed = 1e6;  // relative to another speed
constexpr double kLongest = 1e9;    // ns

void want_range(const Machine& machine, const std::string& key, double value, double least, double most) {
  require(value >= least && value <= most, "machine {}: {} = {}: want {} to {}", machine.name, key, value, least, most);
}

void want_rate(const Machine& machine, const char* key, double value) {
  require(value > 0, "machine {}: {} = {}: want more than 0", machine.name, key, value);
  want_range(machine, key, value, kLeastRate, kMostRate);
}

// 0 means no limit, or that the machine has no such part.
void want_rate_or_none(const Machine& machine, const char* key, double value) {
  require(value >= 0, "machine {}: {} = {}: want at least 0", machine.name, key, value);
  if (value > 0) want_rate(machine, key, value);
}

void want_speed(const Machine& machine, const char* key, double value) {
  require(value > 0, "machine {}: {} = {}: want more than 0", machine.name, key, value);
  want_range(machine, key, value, kLeastShare, kMostSpeed);
}

void want_time(const Machine& machine, const char* key, double value) {
  require(value >= 0, "machine {}: {} = {}: want at least 0", machine.name, key, value);
  want_range(machine, key, value, 0, kLongest);
}

void want_share(const Machine& machine, const std::string& key, double value) {
  require(value > 0 && value <= 1, "machine {}: {} = {}: want more than 0 and at most 1", machine.name, key, value);
  want_range(machine, key, value, kLeastShare, 1);
}

// "128x64"
bool is_shape(const std::string& text) {
  const size_t by = text.find('x');
  const auto is_size = [](const std::string& size) {
    return !size.empty() && size.size() <= 6 && size.front() != '0' &&
           size.find_first_not_of("0123456789") == std::string::npos;
  };
  return by != std::string::npos && is_size(text.substr(0, by)) && is_size(text.substr(by + 1));
}

void validate_links(const Machine& machine) {
  const Links& links = machine.links;
  const bool two = links.topology == Topology::torus2d || links.topology == Topology::two_level;
  require(std::ssize(links.dims) == (two ? 2 : 1), "machine {}: links.dims has {} sizes, links.topology = {} wants {}",
          machine.name, links.dims.size(), to_string(links.topology), two ? 2 : 1);
  int64_t devices = 1;
  for (const int size : links.dims) {
    require(size >= 1, "machine {}: links.dims has {}: want at least 1", machine.name, size);
    devices *= size;
    require(devices <= sim::kMostDevices, "machine {}: links.dims make more than {} devices", machine.name,
            sim::kMostDevices);
  }
  want_rate(machine, "links.bandwidth_GBps", links.bandwidth_GBps);
  want_time(machine, "links.latency_ns", links.latency_ns);
  want_rate_or_none(machine, "links.unit_bandwidth_GBps", links.unit_bandwidth_GBps);
  want_share(machine, "links.store_efficiency", links.store_efficiency);
  want_share(machine, "links.add_efficiency", links.add_efficiency);
  want_share(machine, "links.meeting_efficiency", links.meeting_efficiency);
  want_time(machine, "links.between_latency_ns", links.between_latency_ns);
  want_rate_or_none(machine, "links.between_bandwidth_GBps", links.between_bandwidth_GBps);
  if (links.topology == Topology::two_level) {
    want_rate(machine, "links.between_bandwidth_GBps", links.between_bandwidth_GBps);
  }
}

void validate_controller(const Machine& machine, const MemoryController& controller) {
  const auto at_least = [&](const char* key, int64_t value, int64_t least, const char* other = "") {
    require(value >= least, "machine {}: controller.{} = {}: want at least {}{}", machine.name, key, value, other,
            least);
    require(value <= kMostCount, "machine {}: controller.{} = {}: want at most {}", machine.name, key, value,
            kMostCount);
  };
  at_least("channels", controller.channels, 1);
  at_least("column_bytes", controller.column_bytes, 1);
  at_least("request_bytes", controller.request_bytes, controller.column_bytes, "controller.column_bytes = ");
  at_least("bank_groups", controller.bank_groups, 1);
  at_least("column_clocks", controller.column_clocks, 1);
  at_least("update_clocks", controller.update_clocks, controller.column_clocks, "controller.column_clocks = ");
  at_least("queue", controller.queue, 1);
  at_least("starvation_clocks", controller.starvation_clocks, 0);
  at_least("step_k", controller.step_k, 1);
  want_rate(machine, "controller.clock_GHz", controller.clock_GHz);
  const double columns_ns = controller.column_clocks / controller.clock_GHz;
  const double reach =
      static_cast<double>(controller.channels) * controller.bank_groups * controller.column_bytes / columns_ns;
  require(reach >= machine.memory.bandwidth_GBps,
          "machine {}: memory.bandwidth_GBps = {}: the controller's bank groups provide only {} GB/s; "
          "controller.channels = {}, controller.bank_groups = {}, controller.column_bytes = {}, "
          "controller.column_clocks = {}, controller.clock_GHz = {}",
          machine.name, machine.memory.bandwidth_GBps, reach, controller.channels, controller.bank_groups,
          controller.column_bytes, controller.column_clocks, controller.clock_GHz);
  const double request_ns =
      static_cast<double>(controller.request_bytes) * controller.channels / machine.memory.bandwidth_GBps;
  require(request_ns <= kLongestRequest,
          "machine {}: a request takes {} ns of a channel's bus: want at most {}; memory.bandwidth_GBps = {}, "
          "controller.channels = {}, controller.request_bytes = {}",
          machine.name, request_ns, kLongestRequest, machine.memory.bandwidth_GBps, controller.channels,
          controller.request_bytes);
  want_time(machine, "controller.latency_ns", controller.latency_ns);
  for (const int threshold : controller.thresholds) at_least("thresholds", threshold, 1);
  require(std::ranges::is_sorted(controller.thresholds, std::less_equal<>()),
          "machine {}: controller.thresholds = [{}]: want the lowest first, none twice", machine.name,
          fmt::join(controller.thresholds, ", "));
  require(machine.links.forwarding == Forwarding::cut_through,
          "machine {}: links.forwarding = store_and_forward: a memory controller wants cut_through", machine.name);
}

void validate_tracker(const Machine& machine, const Tracker& tracker) {
  const std::pair<const char*, int> values[] = {{"entries", tracker.entries},
                                                {"address_bits", tracker.address_bits},
                                                {"counter_bits", tracker.counter_bits},
                                                {"workgroup_bits", tracker.workgroup_bits},
                                                {"wavefront_bits", tracker.wavefront_bits}};
  require(tracker.ways >= 1 && tracker.ways <= kMostWays, "machine {}: tracker.ways = {}: want 1 to {}", machine.name,
          tracker.ways, kMostWays);
  for (const auto& [key, value] : values)
    require(value >= 1 && value <= kMostCount, "machine {}: tracker.{} = {}: want 1 to {}", machine.name, key, value,
            kMostCount);
  require(std::has_single_bit(static_cast<unsigned>(tracker.entries)),
          "machine {}: tracker.entries = {}: want a power of two, as low bits of workgroups choose one", machine.name,
          tracker.entries);
}

}  // namespace

void validate(const Machine& machine) {
  const ComputeUnits& compute = machine.compute;
  require(compute.units >= 1 && compute.units <= 1 << 16, "machine {}: compute.units = {}: want 1 to {}", machine.name,
          compute.units, 1 << 16);
  want_rate(machine, "compute.clock_GHz", compute.clock_GHz);
  want_rate(machine, "compute.flops_per_clock_per_unit", compute.flops_per_clock_per_unit);
  want_speed(machine, "compute.fp32_speed", compute.fp32_speed);
  want_speed(machine, "compute.tf32_speed", compute.tf32_speed);
  want_share(machine, "compute.efficiency", compute.efficiency);
  want_time(machine, "compute.tile_ns", compute.tile_ns);
  for (const auto& [shape, efficiency] : compute.tile_efficiency) {
    require(is_shape(shape), "machine {}: compute.tile_efficiency has '{}': want a shape of tiles, as 128x128",
            machine.name, shape);
    want_share(machine, "compute.tile_efficiency." + shape, efficiency);
  }
  require(compute.side_units >= 0 && compute.side_units <= compute.units,
          "machine {}: compute.side_units = {}: want 0 to compute.units = {}; change compute.units and "
          "compute.side_units together",
          machine.name, compute.side_units, compute.units);
  want_rate(machine, "memory.bandwidth_GBps", machine.memory.bandwidth_GBps);
  want_rate_or_none(machine, "memory.unit_bandwidth_GBps", machine.memory.unit_bandwidth_GBps);
  want_range(machine, "memory.cache_MiB", machine.memory.cache_MiB, 0, kMostCache);
  require(machine.copy.engines >= 1 && machine.copy.engines <= kMostCount,
          "machine {}: copy.engines = {}: want 1 to {}", machine.name, machine.copy.engines, kMostCount);
  want_time(machine, "copy.issue_ns", machine.copy.issue_ns);
  want_time(machine, "copy.doorbell_ns", machine.copy.doorbell_ns);
  validate_links(machine);
  if (machine.controller) validate_controller(machine, *machine.controller);
  if (machine.tracker) validate_tracker(machine, *machine.tracker);
  const Overheads& overheads = machine.overheads;
  want_time(machine, "overheads.launch_ns", overheads.launch_ns);
  want_time(machine, "overheads.signal_ns", overheads.signal_ns);
  want_time(machine, "overheads.library_ns", overheads.library_ns);
  want_time(machine, "overheads.collective_ns", overheads.collective_ns);
  want_share(machine, "overheads.collective_efficiency", overheads.collective_efficiency);
  want_speed(machine, "overheads.library_efficiency", overheads.library_efficiency);
}

}  // namespace tilewire
