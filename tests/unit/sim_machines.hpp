// Machines with round numbers, for hand-computed times.
// Used by the tests of the simulator.
#pragma once

#include "tilewire/sim/machine.hpp"

namespace tilewire::sim_machines {

/// `devices` fully connected: one unit that makes 1 FLOP per ns, also of fp32, links of 1 byte per ns and 10 ns of
/// latency. Nothing else takes time.
inline Machine round_numbers(int devices) {
  Machine machine{.name = "round"};
  machine.compute = {.units = 1, .clock_GHz = 1, .flops_per_clock_per_unit = 1, .fp32_speed = 1};
  machine.memory = {.bandwidth_GBps = 1e6, .cache_MiB = 64};
  machine.links = {.dims = {devices}, .bandwidth_GBps = 1, .latency_ns = 10};
  return machine;
}

}  // namespace tilewire::sim_machines
