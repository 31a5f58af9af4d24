// What the host asks of a plan before it runs it.
// Called by HostGroup.
#pragma once

#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::host {

/// Names of what the host cannot do in the plan; empty = all of it.
[[nodiscard]] std::vector<std::string> missing_features(const Plan& plan);
/// Throw Error(invalid_input) where a task would touch memory that is not its own or not what it
/// expects: unequal depths of a product, unreachable peers, mixed types. The plan must be validated.
void require_runnable(const Plan& plan);

}  // namespace tilewire::host
