// Execution traces as files of MLCommons Chakra, and the machine as ASTRA-sim's configuration. docs/chakra.md says what
// is in them. Used by chakra_verb.cpp and tests.
#pragma once

#include <string>
#include <vector>

#include "studies/chakra.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// A rank's trace: for each message its length as a varint, then itself; the first one is the GlobalMetadata.
[[nodiscard]] std::string trace_text(const std::vector<ChakraNode>& nodes, const Plan& plan, int rank);
/// ASTRA-sim's network.yml. Throws Error(unsupported) where the plan's ranks are not the devices of a network that has
/// several kinds of neighbours, or are fewer than 2.
[[nodiscard]] std::string network_text(const Machine& machine, int num_ranks);
/// ASTRA-sim's system.json: compute units and memory as a roofline, and how collectives are done.
[[nodiscard]] std::string system_text(const Machine& machine, const Plan& plan);

/// The files that write_chakra writes.
[[nodiscard]] std::vector<std::string> chakra_files(const std::string& folder, int num_ranks);
/// Find out whether the folder and its files can be written, or made. Throws Error(invalid_input).
void check_chakra_folder(const std::string& folder, int num_ranks);
/// Make the folder where there is none, and write trace.<rank>.et, network.yml, system.json and remote_memory.json.
/// Returns what to say of them: how many, and the command that runs them. Throws Error.
[[nodiscard]] std::string write_chakra(const std::string& folder, const Plan& plan, const Machine& machine);

}  // namespace tilewire::cli
