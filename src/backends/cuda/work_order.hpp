// An order in which all tasks of a plan can begin.
// Called by programs: streams may share queues of a device, where what is enqueued first holds up the rest.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// [lane][task]: the task's place among those of all ranks. Work that is enqueued in this order waits only for what
/// stands before it, on every rank, so a queue that it shares comes to an end.
[[nodiscard]] std::vector<std::vector<int64_t>> begin_order(const Plan& plan);

}  // namespace tilewire::cuda
