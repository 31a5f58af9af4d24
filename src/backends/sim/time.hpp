// The virtual clock's time.
// Used by flows and the engine.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/text.hpp"

namespace tilewire::sim {

using Time = int64_t;  ///< picoseconds since the call began
inline constexpr Time kNever = std::numeric_limits<Time>::max();
inline constexpr double kPsPerNs = 1e3;

/// `ns` after `now`, rounded up. Throws Error(invalid_input) where a call would take months.
[[nodiscard]] inline Time later(Time now, double ns) {
  constexpr double kMost = 8e18;
  constexpr double kRounding = 1e-6;  // of sums that ought to make a whole number
  const double ps = ns * kPsPerNs;
  require(static_cast<double>(now) + ps < kMost,
          "the call takes more than 92 days: a rate of the machine is too small, or a latency too long");
  return now + static_cast<Time>(std::ceil(ps - kRounding));
}

}  // namespace tilewire::sim
