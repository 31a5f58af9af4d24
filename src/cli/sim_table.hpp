// What `tilewire sim` prints of its rows.
// Used by sim.
#pragma once

#include <string>
#include <vector>

#include "cli/sim_rows.hpp"

namespace tilewire::cli {

/// One table of all rows, with a column for each of the keys that a sweep changed.
[[nodiscard]] std::string table_of(const std::vector<Simulated>& rows, const std::vector<std::string>& keys);
/// When each rank ended, and what memories and links carried.
[[nodiscard]] std::string loads_text(const nlohmann::json& row);

}  // namespace tilewire::cli
