// Whether a plan's accesses to memory are ordered, without a word on what it computes.
// Called by passes that take waits out of a plan.
#pragma once

#include <optional>
#include <string>

#include "tilewire/plan.hpp"

namespace tilewire::checking {

/// A deadlock, or two accesses that nothing orders, in words; or nothing. The plan has passed validate().
[[nodiscard]] std::optional<std::string> first_race(const Plan& plan);

}  // namespace tilewire::checking
