// The host backend's rules for plans.
// Called by HostGroup.
#pragma once

#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::host {

/// Names of the plan's features that the host lacks; empty = none.
[[nodiscard]] std::vector<std::string> missing_features(const Plan& plan);
/// Throw Error(invalid_input) if a task would access memory that it cannot address, or operands that do not fit:
/// unequal depths of a product, unreachable peers, mixed types. The plan must be validated.
void require_runnable(const Plan& plan);

}  // namespace tilewire::host
