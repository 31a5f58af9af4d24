// The schedule `two_stream`: tiles post flags; a second lane all-reduces tile by tile (DistFuse).
// Listed in schedules.cpp.
#pragma once

#include "tilewire/spi/schedule.hpp"

namespace tilewire {

[[nodiscard]] Schedule two_stream();

}  // namespace tilewire
