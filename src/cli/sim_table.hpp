// What `tilewire sim` prints of its rows.
// Used by sim.cpp, and by sweep_verb.cpp and chakra_verb.cpp of studies/.
#pragma once

#include <string>
#include <vector>

#include "cli/sim_rows.hpp"

namespace tilewire::cli {

/// One table of all rows, before it a column for each of these keys of their `settings`.
[[nodiscard]] std::string table_of(const std::vector<Simulated>& rows, const std::vector<std::string>& keys = {});
/// When each rank ended, and what memories and links carried.
[[nodiscard]] std::string loads_text(const nlohmann::json& row);

}  // namespace tilewire::cli
