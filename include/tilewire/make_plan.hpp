// Makes a plan from a problem and a config, and reads both back from a plan's note.
// Called by make_op, the tuner, the command line, and programs that need only plans.
#pragma once

#include <string>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// The config of a schedule that is given by name alone: the first of its candidates for this problem and team, or
/// Config's defaults if it has no candidates. Throws Error(invalid_input) for an unknown name or a broken rule.
[[nodiscard]] Config default_config(const std::string& name, const Problem& problem, const Team& team);

/// Validate problem, team and config, find the schedule, and build the plan. Throws Error(invalid_input) for a broken
/// rule, Error(unsupported) with the schedule's reason.
[[nodiscard]] Plan make_plan(const Problem& problem, const Team& team, const Config& config);

/// The problem and the config of a plan, as its note holds them.
struct PlanNote {
  Problem problem{};
  Config config{};

  bool operator==(const PlanNote&) const = default;
};
/// Parse a plan's note. Throws Error(invalid_input) if the plan has no note or a note of another form.
[[nodiscard]] PlanNote note_of(const Plan& plan);
/// Set a plan's note and its operator's name.
void set_note(Plan& plan, const PlanNote& note);

}  // namespace tilewire
