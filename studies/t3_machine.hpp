// The machine on which the verbs t3 and claims simulate T3's study.
// Used by t3_verb.cpp and claims_verb.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

struct T3MachineFlags {
  std::string machine = "t3_ring";
  std::vector<std::string> set{};
  std::vector<std::string> sweep{};  ///< always refused
};
void add_t3_machine_flags(CLI::App& verb, T3MachineFlags& flags);
/// Throw Error(invalid_input) if there are sweeps.
void refuse_sweeps(const T3MachineFlags& flags);
/// The machine of the flags. Throws Error(invalid_input).
[[nodiscard]] Machine machine_of(const T3MachineFlags& flags);

}  // namespace tilewire::cli
