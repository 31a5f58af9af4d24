// A schedule: a function from a problem to a plan. One file each in src/schedules; the table is
// src/schedules/schedules.cpp. Used by make_op, the tuner and the command line.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// One row of the table of schedules.
struct Schedule {
  const char* name;
  const char* summary;
  /// Why this schedule cannot do the problem or honour a knob of the config, or nothing.
  std::optional<std::string> (*refuses)(const Problem&, const Team&, const Config&);
  /// Build the plan for all ranks; only called where `refuses` says nothing.
  Plan (*make)(const Problem&, const Team&, const Config&);
  /// Configs worth measuring for this problem, most promising first.
  std::vector<Config> (*candidates)(const Problem&, const Team&);
};

/// What a plan was made of, as its note keeps it.
struct PlanNote {
  Problem problem{};
  Config config{};

  bool operator==(const PlanNote&) const = default;
};
/// A plan's note. Throws Error(invalid_input) where it has none, or another one.
[[nodiscard]] PlanNote note_of(const Plan& plan);
/// Say what a plan is made of: its note, and the operator's name.
void set_note(Plan& plan, const PlanNote& note);

[[nodiscard]] std::span<const Schedule> schedules();
/// Throw Error(invalid_input) that lists the known names.
[[nodiscard]] const Schedule& find_schedule(const std::string& name);

/// What a schedule runs with where only its name is given: the first of its candidates for this problem and team, or
/// where it has none the defaults of Config. Throws Error(invalid_input) for an unknown name or a broken rule.
[[nodiscard]] Config default_config(const std::string& name, const Problem& problem, const Team& team);

/// Validate problem, team and config, find the schedule, build the plan. Throws Error(invalid_input) for a
/// broken rule, Error(unsupported) with the schedule's reason.
[[nodiscard]] Plan make_plan(const Problem& problem, const Team& team, const Config& config);

}  // namespace tilewire
