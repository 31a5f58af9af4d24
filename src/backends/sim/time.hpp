// Time on the virtual clock.
// Used by flows, memory controllers and the engine.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace tilewire::sim {

using Time = int64_t;  ///< picoseconds since the call began
inline constexpr Time kNever = std::numeric_limits<Time>::max();
inline constexpr double kPsPerNs = 1e3;

/// Thrown when the virtual clock overflows.
struct TooLong {};

/// `now` plus `ns`, rounded up to a picosecond. Throws TooLong if the call would take months.
[[nodiscard]] inline Time later(Time now, double ns) {
  constexpr double kMost = 8e18;
  constexpr double kRounding = 1e-6;  // in ps, of sums that should be whole numbers
  const double ps = ns * kPsPerNs;
  if (!(static_cast<double>(now) + ps < kMost)) throw TooLong{};
  return now + static_cast<Time>(std::ceil(ps - kRounding));
}

}  // namespace tilewire::sim
