// Files that flags name: JSON lists that are read, results that are written.
// Used by bench, run, sim, and the flags of all verbs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/options.hpp"

namespace tilewire::cli {

/// The JSON in a file. Throws Error(invalid_input) that names the file and, if it is malformed, line and column.
[[nodiscard]] nlohmann::json read_json(const std::string& path);

/// A file that a flag names, such as "--json" or "--output c". An empty path: the flag was not given.
struct FlagFile {
  std::string flag;
  std::string path;
  bool in_pieces = false;  ///< ranks write it by offset; otherwise "-" is standard output
  bool untried = false;    ///< check_files does not try to write it: a note, or another check, reports the failure
};

/// The file of --trace. Throws Error(invalid_input) if it is standard output.
[[nodiscard]] FlagFile trace_file(const Options& options);
/// The tuner's file, which --schedule auto reads and writes; no path with another schedule.
[[nodiscard]] FlagFile tuner_file(const Options& options);
/// The files that the flags of problems and schedules read.
[[nodiscard]] std::vector<FlagFile> input_files(const Options& options);

/// The file of --machine, if that is not a known machine's name.
[[nodiscard]] FlagFile machine_file(const std::string& name_or_path);

/// Throw Error(invalid_input) that names both flags if an output is also another output or an input, under any name.
/// Devices such as /dev/null take any number of outputs.
void check_apart(const std::vector<FlagFile>& outputs, const std::vector<FlagFile>& inputs);
/// The same, and throw if an output cannot be written. Changes no file; call it before the work.
void check_files(const std::vector<FlagFile>& outputs, const std::vector<FlagFile>& inputs);

}  // namespace tilewire::cli
