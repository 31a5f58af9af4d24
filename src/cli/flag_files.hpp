// Files that flags name: lists in JSON that are read, results that are written.
// Used by bench, run, sim, and the flags of all verbs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tilewire::cli {

/// The JSON that a file holds. Throws Error(invalid_input) that names the file and, where it is malformed, line and
/// column.
[[nodiscard]] nlohmann::json read_json(const std::string& path);

/// Whether both paths are those of one file, which need not be there.
[[nodiscard]] bool same_file(const std::string& a, const std::string& b);

/// Throw Error(invalid_input) where --json and --trace (empty: not given) name one file, or a trace would go to
/// standard output.
void check_outputs(const std::string& json, const std::string& trace);

}  // namespace tilewire::cli
