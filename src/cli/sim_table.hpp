// Tables of the rows of `tilewire sim`.
// Used by sim.cpp, and by sweep_verb.cpp and chakra_verb.cpp of studies/.
#pragma once

#include <string>
#include <vector>

#include "cli/sim_rows.hpp"

namespace tilewire::cli {

/// One table of all rows, which begins with a column for each of these keys of their `settings`.
[[nodiscard]] std::string table_of(const std::vector<Simulated>& rows, const std::vector<std::string>& keys = {});
/// When each rank ended, and the traffic of memories and links.
[[nodiscard]] std::string loads_text(const nlohmann::json& row);

}  // namespace tilewire::cli
