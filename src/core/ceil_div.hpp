// Integer division that rounds up.
// Used by schedules, the simulator and the cuda backend.
#pragma once

#include <cstdint>

namespace tilewire {

/// a / b, rounded up; a >= 0, b > 0.
[[nodiscard]] constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace tilewire
