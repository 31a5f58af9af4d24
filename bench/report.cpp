// Writes the JSON reports of benchmarks.
// Called by the programs in this folder.
#include "report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cli/facts.hpp"
#include "core/text.hpp"
#include "tuner/measure.hpp"

namespace tilewire::bench {

using nlohmann::json;

Flags parse_flags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      flags.quick = true;
    } else if (flag == "--json" && i + 1 < argc) {
      flags.json = argv[++i];
    } else {
      fmt::print(stderr, "unknown flag {}; known: --json FILE, --quick\n", flag);
      std::exit(2);
    }
  }
  return flags;
}

json statistics(const std::vector<double>& samples) {
  return {{"median", tuner::median(samples)},
          {"min", *std::min_element(samples.begin(), samples.end())},
          {"samples", samples}};
}

void write_report(const Flags& flags, const std::string& name, const json& rows) {
  for (json row : rows) {
    for (json& field : row) {
      if (field.is_object()) field.erase("samples");
    }
    std::cout << row.dump() << '\n';
  }
  if (flags.json.empty()) return;
  const char* commit = std::getenv("TILEWIRE_COMMIT");
  const json report{{"benchmark", name},
                    {"commit", commit == nullptr ? "unknown" : commit},
                    {"machine", cli::machine_facts()},
                    {"rows", rows}};
  std::ofstream out(flags.json);
  out << report.dump(1) << '\n';
  require(out.good(), "cannot write {}", flags.json);
}

void append_line(const std::string& file, const std::string& line) {
  std::ofstream(file, std::ios::app) << line + "\n" << std::flush;
}

std::vector<std::string> take_lines(const std::string& file) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::filesystem::remove(file);
  return lines;
}

std::string temporary_file() {
  std::string name = (std::filesystem::temp_directory_path() / "tilewire_bench_XXXXXX").string();
  const int descriptor = mkstemp(name.data());
  require(descriptor >= 0, "cannot make {}", name);
  close(descriptor);
  return name;
}

}  // namespace tilewire::bench
