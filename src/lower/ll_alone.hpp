// Plans in which ranks share nothing but LL data: passes need no proof of other memory for them.
// Used by elide_signals.cpp and double_buffer.cpp.
#pragma once

#include "tilewire/plan.hpp"

namespace tilewire::lowering {

/// Whether ranks share nothing but LL data. All other memory is the callers', and each rank accesses only its own;
/// outputs are stored once and not read, inputs are never stored.
[[nodiscard]] bool shares_ll_data_alone(const Plan& plan);

}  // namespace tilewire::lowering
