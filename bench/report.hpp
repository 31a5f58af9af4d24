// What every benchmark writes: machine, versions, commit and rows with all samples, as JSON.
// Used by the programs in this folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tilewire/json.hpp"

namespace tilewire::bench {

/// Flags of all benchmarks: `--json FILE` and `--quick` (small sizes, to see that it runs).
struct Flags {
  std::string json;
  bool quick = false;
};

[[nodiscard]] Flags parse_flags(int argc, char** argv);

/// {"median", "min", "samples"}; samples sorted as they were taken.
[[nodiscard]] nlohmann::json statistics(const std::vector<double>& samples);

/// Print the rows and write {"benchmark", "machine", "commit", "rows"} where --json says.
void write_report(const Flags& flags, const std::string& name, const nlohmann::json& rows);

/// Write text so that the parent of a rank can read it: ranks are processes.
void append_line(const std::string& file, const std::string& line);
/// The lines of a file, which is removed.
[[nodiscard]] std::vector<std::string> take_lines(const std::string& file);
/// An empty file of a new name.
[[nodiscard]] std::string temporary_file();

}  // namespace tilewire::bench
