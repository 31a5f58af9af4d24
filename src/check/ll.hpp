// Checks the rules of LL data (Buffer::ll).
// Called by check.cpp and by the cuda backend.
#pragma once

#include <optional>
#include <string>

#include "tilewire/plan.hpp"

namespace tilewire::checking {

/// The first broken rule of LL data, or nothing. Elements are stored, never added to. Each is read once in a call, by a
/// polling task of its own rank. Another rank stores it only after its owner's ready handshake, unless it is
/// double-buffered.
[[nodiscard]] std::optional<std::string> refuses_ll(const Plan& plan);

}  // namespace tilewire::checking
