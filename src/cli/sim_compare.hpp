// Predicted against measured times.
// Used by sim.
#pragma once

#include <string>

#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// Simulate every row of a bench's JSON file (docs/bench_json.md) with the config of its measurement. Print both times,
/// their ratio, and the geometric-mean error. `json`: a file for these; empty = none.
void compare_with(const std::string& file, const Machine& machine, const std::string& json);

}  // namespace tilewire::cli
