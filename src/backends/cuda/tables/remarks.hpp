// Remarks for users about how a plan runs on GPUs.
// Called by CudaGroup::remarks.
#pragma once

#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// One line for each remark: tiles that tensor cores do not take, and why. For the tiles of rank 0, so that all ranks
/// return the same.
[[nodiscard]] std::vector<std::string> remarks_on(const Plan& plan);

}  // namespace tilewire::cuda
