// Executes a plan's calls in a random interleaving of ranks, lanes, workers, posts and calls, and reports a task that
// read other
// data than in an orderly execution. Finds plans that an unsound checker would accept.
// Called by check_replay_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "tilewire/plan.hpp"

namespace tilewire::check_plans {

/// The first wrong read, wrong output or deadlock in `num_calls` calls; nothing if there is none. The plan must have
/// passed validate(), and the checker's progress and coverage.
[[nodiscard]] std::optional<std::string> replay(const Plan& plan, int num_calls, std::mt19937_64& random);

}  // namespace tilewire::check_plans
