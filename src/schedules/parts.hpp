// Parts of plans: the GEMM without the communication, and the reverse.
// Used by bench and the simulator.
#pragma once

#include "tilewire/plan.hpp"

namespace tilewire {

/// The GEMM of a plan alone: every rank's compute tasks in their order, without waits, posts and all
/// other tasks. What they stored at peers they store in their own copy of the buffer.
[[nodiscard]] Plan gemm_only(const Plan& plan);
/// The rest of a plan alone: every compute task becomes a `sync` that waits and posts as before. NOTE: what tiles store
/// at peers is no longer sent by anybody.
[[nodiscard]] Plan communication_only(Plan plan);

}  // namespace tilewire
