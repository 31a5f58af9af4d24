// Drops waits that the order of stages replaces.
// Called by passes that make stages.
#pragma once

#include <cstddef>

#include "tilewire/plan.hpp"

namespace tilewire::lowering {

/// Remove waits for signals to which only earlier stages of the same rank post, and these posts if no wait is left.
/// Returns the number of removed waits.
size_t drop_waits_between_stages(Plan& plan);

}  // namespace tilewire::lowering
