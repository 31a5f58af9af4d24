// The schedule `fused`: one lane of tiles per rank; tiles wait for their chunk and leave when finished.
// Listed in schedules.cpp.
#pragma once

#include "tilewire/spi/schedule.hpp"

namespace tilewire {

[[nodiscard]] Schedule fused();

}  // namespace tilewire
