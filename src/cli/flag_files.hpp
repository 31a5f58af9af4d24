// Files that flags name: lists in JSON that are read, results that are written.
// Used by bench, run, sim, and the flags of all verbs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/options.hpp"

namespace tilewire::cli {

/// The JSON that a file holds. Throws Error(invalid_input) that names the file and, where it is malformed, line and
/// column.
[[nodiscard]] nlohmann::json read_json(const std::string& path);

/// A file that a flag, "--json" or "--output c", names. No path: it was not given.
struct FlagFile {
  std::string flag;
  std::string path;
  bool in_pieces = false;  ///< ranks write it by offset; if not, "-" is standard output
  bool untried = false;    ///< check_files does not try to write it: a note, or another check, says that it cannot be
};

/// --trace. Throws Error(invalid_input) where it would go to standard output.
[[nodiscard]] FlagFile trace_file(const Options& options);
/// The tuner's file, which --schedule auto reads and writes; no path with another schedule.
[[nodiscard]] FlagFile tuner_file(const Options& options);
/// The files that the flags of problems and schedules read.
[[nodiscard]] std::vector<FlagFile> input_files(const Options& options);

/// --machine, where it is no known machine's name.
[[nodiscard]] FlagFile machine_file(const std::string& name_or_path);

/// Throw Error(invalid_input) that names both flags where an output is another output or an input, under whatever name.
/// Devices such as /dev/null take any number of outputs.
void check_apart(const std::vector<FlagFile>& outputs, const std::vector<FlagFile>& inputs);
/// The same, and where an output cannot be written. Leaves everything as it is; to be called before the work.
void check_files(const std::vector<FlagFile>& outputs, const std::vector<FlagFile>& inputs);

}  // namespace tilewire::cli
