// What bench and sim have rows of: schedules by --schedule, or a list of configs in a file by --configs.
// Used by bench and sim.
#pragma once

#include <string>
#include <vector>

#include "cli/options.hpp"
#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"

namespace tilewire::cli {

/// A row.
struct Entry {
  std::string name;              ///< what it is called: the schedule, or what the file says
  std::string schedule;          ///< or "auto"
  std::vector<std::string> set;  ///< as --set
  bool may_be_refused = false;   ///< the others are measured, or simulated, all the same

  bool operator==(const Entry&) const = default;
};

/// --configs FILE, beside --set, which concerns all of them.
void add_configs_flag(CLI::App& verb, Options& options);
/// The rows that the flags ask for, in their order. Throws Error(invalid_input) where the file holds anything else than
/// [{"name": .., "schedule": .., "set": {knob: value}}], where names are not distinct, or a schedule or knob is
/// unknown.
[[nodiscard]] std::vector<Entry> entries_of(const Options& options);
/// The config of an entry, as config_of says.
[[nodiscard]] Config config_of(const Options& options, const Entry& entry, const Problem& problem, const Team& team);

}  // namespace tilewire::cli
