// Predicted against measured times.
// Used by sim.
#pragma once

#include <string>

#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// Simulate every row of a bench's JSON file (docs/bench_json.md) with the config that it was measured with, and print
/// both times, their ratio, and the geometric-mean error. `json`: where to write them too; empty = nowhere.
void compare_with(const std::string& file, const Machine& machine, const std::string& json);

}  // namespace tilewire::cli
