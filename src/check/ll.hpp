// What holds of LL data (Buffer::ll).
// Called by check.cpp and by the cuda backend.
#pragma once

#include <optional>
#include <string>

#include "tilewire/plan.hpp"

namespace tilewire::checking {

/// Why the LL data of a plan cannot stand for itself, or nothing. An element is stored, never added to; it is read once
/// in a call, by a task that polls, on its rank; another rank stores there after that rank has said that it is ready.
[[nodiscard]] std::optional<std::string> refuses_ll(const Plan& plan);

}  // namespace tilewire::checking
