// Values of a simulated machine, set on the command line.
// Called by sim_request.cpp and studies/.
#include "cli/machine_values.hpp"

#include "cli/options.hpp"

namespace tilewire::cli {

Machine with_values(Machine machine, const std::vector<std::string>& set) {
  for (const std::string& each : set) {
    const auto [key, value] = key_and_value("--set", each, "KEY=VALUE");
    set_value(machine, key, value);
  }
  validate(machine);
  return machine;
}

}  // namespace tilewire::cli
