// LL data: workspace whose elements are their own flags (Buffer::ll).
// Used by passes, the checker, the simulator and backends.
#pragma once

#include <algorithm>

#include "tilewire/plan.hpp"

namespace tilewire {

/// Whether a region holds LL data. All bits of an element are 1 until a task writes it. The reading task polls the
/// element until some bit is 0, takes it, and sets all bits to 1 again. No written value has all bits 1.
[[nodiscard]] inline bool is_ll(const Plan& plan, const Region& region) { return plan.buffers[region.buffer].ll; }

[[nodiscard]] inline bool uses_ll(const Plan& plan) { return std::ranges::any_of(plan.buffers, &Buffer::ll); }

/// Whether a task polls its reads instead of waiting for signals: a copy or sum in a pool of LL data of its own rank.
[[nodiscard]] inline bool polls(const Plan& plan, const Lane& lane, const Task& task) {
  const bool moves = task.kind == TaskKind::copy || task.kind == TaskKind::reduce;
  return moves && !is_serial(lane.engine) && !task.reads.empty() &&
         std::ranges::all_of(task.reads,
                             [&](const Region& read) { return is_ll(plan, read) && read.rank == lane.rank; });
}

}  // namespace tilewire
