// Configs of a gather that are worth measuring where ranks are GPUs.
// Called by gpu_choices.cpp.
#pragma once

#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Of `fused`, most promising first.
[[nodiscard]] std::vector<Config> gather_choices(const Problem& problem, const Team& team);

}  // namespace tilewire
