// The schedule `sequential`: the collective, then the GEMM, or the reverse; the same tiles and sums, no overlap.
// Listed in schedules.cpp.
#pragma once

#include "tilewire/spi/schedule.hpp"

namespace tilewire {

[[nodiscard]] Schedule sequential();

}  // namespace tilewire
