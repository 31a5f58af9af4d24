// Finds a deadlock or a race in a plan, without proving what the plan computes.
// Called by passes that remove waits from a plan.
#pragma once

#include <optional>
#include <string>

#include "tilewire/plan.hpp"

namespace tilewire::checking {

/// The text of a deadlock or of two unordered accesses; nothing if there is none. The plan must have passed validate().
[[nodiscard]] std::optional<std::string> first_race(const Plan& plan);

}  // namespace tilewire::checking
