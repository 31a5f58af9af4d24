// Configs worth measuring where ranks are GPUs: tiles that tensor cores like, copies that travel in lockstep.
// Called by the schedules' `candidates`.
#pragma once

#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Whether every rank is a GPU.
[[nodiscard]] bool on_gpus(const Team& team);

/// What the candidates of each schedule are for a team of GPUs, most promising first.
[[nodiscard]] std::vector<Config> sequential_choices(const Problem& problem, const Team& team);
[[nodiscard]] std::vector<Config> fused_choices(const Problem& problem, const Team& team);
[[nodiscard]] std::vector<Config> two_stream_choices(const Problem& problem, const Team& team);

}  // namespace tilewire
