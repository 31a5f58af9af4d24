// Files that flags name: lists in JSON that are read, results that are written.
// Called by bench, run, sim, and the flags of all verbs.
#include "cli/flag_files.hpp"

#include <filesystem>

#include "cli/options.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"

namespace tilewire::cli {

nlohmann::json read_json(const std::string& path) { return parse_json(read_file(path), path); }

bool same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  // Whoever opens a path that cannot be looked at says so.
  const auto whole = [](const std::string& path) {
    std::error_code error;
    const fs::path found = fs::weakly_canonical(fs::absolute(path, error), error);
    return error ? fs::path(path) : found;
  };
  return whole(a) == whole(b);
}

void check_outputs(const std::string& json, const std::string& trace) {
  if (trace.empty()) return;
  require(trace != "-", "--trace -: want a file: tables go to standard output");
  if (json.empty() || json == "-") return;
  require(!same_file(json, trace), "--trace {}: --json goes there", trace);
}

}  // namespace tilewire::cli
