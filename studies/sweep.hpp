// A grid of machines that differ in some values.
// Used by sweep_verb.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

struct SweepPoint {
  Machine machine{};
  std::map<std::string, double> settings{};  ///< by key: the values that differ from the first machine
};

/// The keys of the sweeps, in order.
[[nodiscard]] std::vector<std::string> swept_keys(const std::vector<std::string>& sweeps);

/// Every combination of "KEY=from:to:step" and "KEY=a,b,c"; the machine alone without sweeps. Throws
/// Error(invalid_input) that names the flag and its fault.
[[nodiscard]] std::vector<SweepPoint> sweep_points(const Machine& machine, const std::vector<std::string>& sweeps);

}  // namespace tilewire::cli
