// From a map of a GEMM's output to a plan: what T3's Tracker and DMA command table are programmed with, as tasks.
// Called by track_trigger.cpp, the simulator's study of T3 and tests.
#pragma once

#include "schedules/output_map.hpp"
#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// The signals that count updates, one for each block of the output: what T3's Tracker counts.
inline constexpr const char* kUpdatedSignals = "updated";

/// The plan of a GEMM + ReduceScatter or GEMM + AllReduce by `map`: tiles in order of stage, a copy task for each block
/// (a tile, or chunk_rows rows) that is sent. Sums are completed in the output itself where it lies in the arena, has
/// the wire's type and needs no epilogue; else in workspace. Throws Error(invalid_input) where the map is not valid.
[[nodiscard]] Plan make_mapped_plan(const Problem& problem, const Team& team, const Config& config,
                                    const OutputMap& map);

}  // namespace tilewire
