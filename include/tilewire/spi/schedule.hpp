// A schedule: a function from a problem to a plan. One file each in src/schedules; the table is
// src/schedules/schedules.cpp. Used by make_op, the tuner and the command line.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// One row of the table of schedules.
struct Schedule {
  const char* name;
  const char* summary;
  /// The reason why this schedule cannot do the problem or honour a knob of the config, or nothing.
  std::optional<std::string> (*refuses)(const Problem&, const Team&, const Config&);
  /// Build the plan for all ranks. Called only if `refuses` returns nothing.
  Plan (*make)(const Problem&, const Team&, const Config&);
  /// Configs to measure for this problem, the most promising first.
  std::vector<Config> (*candidates)(const Problem&, const Team&);
};

[[nodiscard]] std::span<const Schedule> schedules();
/// Throw Error(invalid_input) that lists the known names.
[[nodiscard]] const Schedule& find_schedule(const std::string& name);

}  // namespace tilewire
