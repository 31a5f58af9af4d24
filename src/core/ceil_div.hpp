// How many pieces of a size cover a whole.
// Used by schedules, the simulator and the cuda backend.
#pragma once

#include <cstdint>

namespace tilewire {

/// a / b, rounded up; of what is not negative.
[[nodiscard]] constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace tilewire
