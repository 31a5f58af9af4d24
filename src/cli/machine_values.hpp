// Values of a simulated machine, set on the command line.
// Used by sim_request.cpp and studies/.
#pragma once

#include <string>
#include <vector>

#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// The machine after each --set KEY=VALUE, in order. Throws Error(invalid_input) if a key is unknown, or if the result
/// is no valid machine.
[[nodiscard]] Machine with_values(Machine machine, const std::vector<std::string>& set);

}  // namespace tilewire::cli
