// LL data: workspace whose elements say themselves that they are there (Buffer::ll).
// Used by passes, the checker, the simulator and backends.
#pragma once

#include <algorithm>

#include "tilewire/plan.hpp"

namespace tilewire {

/// Whether the elements of a region are flags, too. Until an element is written all of its bits are 1; whoever reads
/// it looks until they are not, and puts them back. Nothing that is written there has such bits.
[[nodiscard]] inline bool is_ll(const Plan& plan, const Region& region) { return plan.buffers[region.buffer].ll; }

[[nodiscard]] inline bool uses_ll(const Plan& plan) { return std::ranges::any_of(plan.buffers, &Buffer::ll); }

/// Whether a task waits for what it reads by looking at it: a worker's copy or sum of LL data of its own rank.
[[nodiscard]] inline bool polls(const Plan& plan, const Lane& lane, const Task& task) {
  const bool moves = task.kind == TaskKind::copy || task.kind == TaskKind::reduce;
  return moves && !is_serial(lane.engine) && !task.reads.empty() &&
         std::ranges::all_of(task.reads,
                             [&](const Region& read) { return is_ll(plan, read) && read.rank == lane.rank; });
}

}  // namespace tilewire
