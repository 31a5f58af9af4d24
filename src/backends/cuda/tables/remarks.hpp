// What users should know of how a plan runs on GPUs, in words.
// Called by CudaGroup::remarks.
#pragma once

#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// A line for each: tiles that tensor cores do not take, and why; sums that tiles complete. Of rank 0, so that all
/// ranks say the same.
[[nodiscard]] std::vector<std::string> remarks_on(const Plan& plan);

}  // namespace tilewire::cuda
