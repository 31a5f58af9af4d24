// The report of every benchmark: machine, versions, commit and rows with all samples, as JSON.
// Used by the programs in this folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tilewire/json.hpp"

namespace tilewire::bench {

/// Flags of all benchmarks: `--json FILE` and `--quick` (small sizes, as a smoke test).
struct Flags {
  std::string json;
  bool quick = false;
};

[[nodiscard]] Flags parse_flags(int argc, char** argv);

/// {"median", "min", "samples"}; samples in the order of measurement.
[[nodiscard]] nlohmann::json statistics(const std::vector<double>& samples);

/// Print the rows, and write {"benchmark", "machine", "commit", "rows"} to the file of --json.
void write_report(const Flags& flags, const std::string& name, const nlohmann::json& rows);

/// Append a line to a file, for the parent of a rank to read: ranks are processes.
void append_line(const std::string& file, const std::string& line);
/// The lines of a file. Removes the file.
[[nodiscard]] std::vector<std::string> take_lines(const std::string& file);
/// An empty file with a new name.
[[nodiscard]] std::string temporary_file();

}  // namespace tilewire::bench
