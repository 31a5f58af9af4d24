// The machine on which the verbs t3 and claims simulate T3's study.
// Called by t3_verb.cpp and claims_verb.cpp.
#include "studies/t3_machine.hpp"

#include <fmt/format.h>

#include "cli/machine_values.hpp"
#include "core/text.hpp"

namespace tilewire::cli {

void add_t3_machine_flags(CLI::App& verb, T3MachineFlags& flags) {
  verb.add_option("--machine", flags.machine, "A known machine, or a JSON file (default: t3_ring)")
      ->type_name("NAME|FILE");
  verb.add_option("--set", flags.set, "Set a value of the machine (--set links.bandwidth_GBps=150)")
      ->type_name("KEY=VALUE");
  verb.add_option("--sweep", flags.sweep)->group("");  // not in the help: known only to be refused with a message
}

void refuse_sweeps(const T3MachineFlags& flags) {
  require(flags.sweep.empty(), "--sweep {}: a study has one machine; call once for each value, with --set",
          fmt::join(flags.sweep, " "));
}

Machine machine_of(const T3MachineFlags& flags) {
  refuse_sweeps(flags);
  for (const std::string& set : flags.set) {
    require(!set.starts_with("controller.arbitration=") && !set.starts_with("links.dims="),
            "--set {}: the study sets the arbitration and the number of devices itself", set);
  }
  return with_values(load_machine(flags.machine), flags.set);
}

}  // namespace tilewire::cli
