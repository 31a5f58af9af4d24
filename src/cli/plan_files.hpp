// Plans in files that `tilewire plan --json` has written.
// Used by check and sim.
#pragma once

#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cli {

/// Move the files out of `names`: names of no operator that contain a dot or a slash, or that exist as files.
[[nodiscard]] std::vector<std::string> take_files(std::vector<std::string>& names);
/// Read a plan; its structure is valid. Throws Error(invalid_input) that names the file.
[[nodiscard]] Plan load_plan(const std::string& path);
/// The same; throws Error(refused_plan) with the checker's text if it does not prove the plan.
[[nodiscard]] Plan load_proven_plan(const std::string& path);

}  // namespace tilewire::cli
