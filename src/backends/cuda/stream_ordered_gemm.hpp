// Plans whose call of the vendor's GEMM can stand between two kernels of one stream.
// Called by lane_tables.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// How many tasks of each lane come before the rank's one call of the GEMM: those that wait for no call of any rank,
/// themselves or by way of others. All of them can end before any call begins, and the others can begin after it, so
/// that a kernel, the call and a kernel in a row do what the plan says. Nothing, where a call waits for another one, a
/// rank has several, something is called that is no GEMM, or data moves that no call waits for: beside it, then.
[[nodiscard]] std::vector<int64_t> tasks_before_calls(const Plan& plan);

}  // namespace tilewire::cuda
