// Plans that `tilewire plan --json` wrote.
// Used by check and sim.
#pragma once

#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cli {

/// Take out of `names` those that are files: no operator's name, and with a dot or a slash, or there.
[[nodiscard]] std::vector<std::string> take_files(std::vector<std::string>& names);
/// Read one; its structure is valid. Throws Error(invalid_input) that names the file.
[[nodiscard]] Plan load_plan(const std::string& path);
/// The same; throws Error(refused_plan) with the checker's words where it does not prove the plan.
[[nodiscard]] Plan load_proven_plan(const std::string& path);

}  // namespace tilewire::cli
