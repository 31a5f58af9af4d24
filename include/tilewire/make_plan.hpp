// From a problem and a config to a plan, and back.
// Called by make_op, the tuner, the command line, and users that want plans alone.
#pragma once

#include <string>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// What a schedule runs with where only its name is given: the first of its candidates for this problem and team, or
/// where it has none the defaults of Config. Throws Error(invalid_input) for an unknown name or a broken rule.
[[nodiscard]] Config default_config(const std::string& name, const Problem& problem, const Team& team);

/// Validate problem, team and config, find the schedule, build the plan. Throws Error(invalid_input) for a
/// broken rule, Error(unsupported) with the schedule's reason.
[[nodiscard]] Plan make_plan(const Problem& problem, const Team& team, const Config& config);

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

}  // namespace tilewire
