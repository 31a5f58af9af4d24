// The rows of bench and sim: schedules of --schedule, or a list of configs in the file of --configs.
// Used by bench and sim.
#pragma once

#include <string>
#include <vector>

#include "cli/options.hpp"
#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"

namespace tilewire::cli {

/// One row.
struct Entry {
  std::string name;              ///< the schedule, or the name in the file
  std::string schedule;          ///< or "auto"
  std::vector<std::string> set;  ///< as --set
  bool may_be_refused = false;   ///< if it is refused, the other rows are still measured or simulated

  bool operator==(const Entry&) const = default;
};

/// Add --configs FILE. --set holds for all of its configs.
void add_configs_flag(CLI::App& verb, Options& options);
/// The rows of the flags, in order. Throws Error(invalid_input) if the file holds anything else than [{"name": ..,
/// "schedule": .., "set": {knob: value}}], if names are not distinct, or if a schedule or knob is unknown.
[[nodiscard]] std::vector<Entry> entries_of(const Options& options);
/// The config of an entry (config_of, options.hpp).
[[nodiscard]] Config config_of(const Options& options, const Entry& entry, const Problem& problem, const Team& team);

}  // namespace tilewire::cli
