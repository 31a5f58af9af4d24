// Files that flags name: JSON lists that are read, results that are written.
// Called by bench, run, sim, and the flags of all verbs.
#include "cli/flag_files.hpp"

#include <algorithm>
#include <map>

#include "cli/options.hpp"
#include "core/json_text.hpp"
#include "core/output_file.hpp"
#include "core/text.hpp"
#include "tilewire/env.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {
namespace {

constexpr const char* kStandardOutput = "/dev/stdout";

bool is_standard_output(const FlagFile& file) { return file.path == "-" && !file.in_pieces; }

// "--json x.json", "--output c=x.npy"
std::string text_of(const FlagFile& file) {
  return file.flag + (file.flag.find(' ') == std::string::npos ? " " : "=") + file.path;
}

}  // namespace

nlohmann::json read_json(const std::string& path) { return parse_json(read_file(path), path); }

FlagFile trace_file(const Options& options) {
  require(options.trace != "-", "--trace -: want a file: tables go to standard output");
  return {"--trace", options.trace};
}

FlagFile tuner_file(const Options& options) {
  return {.flag = "the tuner's file",
          .path = options.schedule == "auto" ? env::tuner_file() : "",
          .in_pieces = false,
          .untried = true};
}

std::vector<FlagFile> input_files(const Options& options) {
  return {{"--shapes", options.shapes}, {"--configs", options.configs}};
}

FlagFile machine_file(const std::string& name_or_path) {
  const std::vector<std::string> known = machine_names();
  const bool is_known = std::ranges::find(known, name_or_path) != known.end();
  return {"--machine", is_known ? "" : name_or_path};
}

void check_apart(const std::vector<FlagFile>& outputs, const std::vector<FlagFile>& inputs) {
  const OutputPlace standard = output_place(kStandardOutput);
  std::map<std::string, const FlagFile*> there;  // by the files' identities
  for (const FlagFile& output : outputs) {
    if (output.path.empty()) continue;
    const OutputPlace place = output_place(is_standard_output(output) ? kStandardOutput : output.path);
    const auto identity = place.identity();
    if (!identity) continue;
    const auto [known, fresh] = there.emplace(*identity, &output);
    require(fresh, "{}: is also {}", text_of(output), known->second->flag);
    // NOTE: otherwise tables would go to a file that a rename replaces.
    require(place.opened || !standard.regular() || standard.identity() != identity, "{}: is also standard output",
            text_of(output));
  }
  for (const FlagFile& input : inputs) {
    if (input.path.empty()) continue;
    const auto identity = output_place(input.path).identity();
    if (!identity || !there.contains(*identity)) continue;
    fail(ErrorKind::invalid_input, "{}: {} would be overwritten", text_of(*there.at(*identity)), input.flag);
  }
}

void check_files(const std::vector<FlagFile>& outputs, const std::vector<FlagFile>& inputs) {
  check_apart(outputs, inputs);
  for (const FlagFile& output : outputs) {
    if (output.path.empty() || output.untried || is_standard_output(output)) continue;
    check_output(output.path, output.in_pieces);
  }
}

}  // namespace tilewire::cli
