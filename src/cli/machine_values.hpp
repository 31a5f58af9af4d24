// Values of a machine that the command line sets.
// Used by sim_request.cpp and studies/.
#pragma once

#include <string>
#include <vector>

#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// The machine with the values of --set KEY=VALUE, in turn. Throws Error(invalid_input) where a key is unknown or the
/// machine is none with them.
[[nodiscard]] Machine with_values(Machine machine, const std::vector<std::string>& set);

}  // namespace tilewire::cli
