// The schedule `track_trigger` (T3). Listed in schedules.cpp.
#pragma once

#include "tilewire/spi/schedule.hpp"

namespace tilewire {

[[nodiscard]] Schedule track_trigger();

}  // namespace tilewire
