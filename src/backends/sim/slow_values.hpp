// Finds the values of a machine that make a call extremely long.
// Called by simulate.cpp when the virtual clock overflows.
#pragma once

#include <string>

#include "tilewire/sim/machine.hpp"

namespace tilewire::sim {

/// The values that are most slower than usual, at least one: "links.bandwidth_GBps = 0.001, links.latency_ns = 1".
[[nodiscard]] std::string slowest_values(const Machine& machine);

}  // namespace tilewire::sim
