// Which of a machine's values make a call as long as it is.
// Called by simulate.cpp, where the clock ends.
#pragma once

#include <string>

#include "tilewire/sim/machine.hpp"

namespace tilewire::sim {

/// Those that are slower than usual by the most, at least one, as "links.bandwidth_GBps = 0.001, links.latency_ns = 1".
[[nodiscard]] std::string slowest_values(const Machine& machine);

}  // namespace tilewire::sim
