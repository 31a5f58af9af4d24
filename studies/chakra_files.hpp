// Execution traces as files of MLCommons Chakra, and the machine as ASTRA-sim's configuration (docs/chakra.md).
// Used by chakra_verb.cpp and tests.
#pragma once

#include <string>
#include <vector>

#include "studies/chakra.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// A rank's trace: each message after its length, a varint; the first message is the GlobalMetadata.
[[nodiscard]] std::string trace_text(const std::vector<ChakraNode>& nodes, const Plan& plan, int rank);
/// ASTRA-sim's network.yml. Throws Error(unsupported) if the plan's ranks are fewer than 2, or if they are not all
/// devices of a network that has several kinds of neighbours.
[[nodiscard]] std::string network_text(const Machine& machine, int num_ranks);
/// ASTRA-sim's system.json: compute units and memory as a roofline, and the algorithms of collectives.
[[nodiscard]] std::string system_text(const Machine& machine, const Plan& plan);

/// The files that write_chakra writes.
[[nodiscard]] std::vector<std::string> chakra_files(const std::string& folder, int num_ranks);
/// Throw Error(invalid_input) if the folder or its files cannot be written or made.
void check_chakra_folder(const std::string& folder, int num_ranks);
/// Make the folder if it does not exist, and write trace.<rank>.et, network.yml, system.json and remote_memory.json.
/// Returns text about them: their number, and the command that runs them. Throws Error.
[[nodiscard]] std::string write_chakra(const std::string& folder, const Plan& plan, const Machine& machine);

}  // namespace tilewire::cli
