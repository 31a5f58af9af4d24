// Plans of a GEMM whose own output, of which nothing is summed, is gathered or exchanged as it is made (T3, section
// 7.1). For studies and tests: gemm_all_to_all is planned by all_to_all.cpp, and no operator gathers its output yet.
#pragma once

#include "schedules/output_map.hpp"
#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Rank r multiplies its rows of A (m x k over all ranks) by B, which every rank has whole. With Collective::all_gather
/// every rank gets all of the product, with Collective::all_to_all its columns of it; then chunk r * ranks + s of `map`
/// is the rows of rank r and the columns of rank s. A block is a tile, or chunk_rows rows of a chunk. The inputs `a`
/// and `b` and the output `c`, which must lie in the arena, are made here; the problem's `op` is only a name. Honours
/// chunk_rows, copy_lanes and the knobs of tiles. Throws Error(invalid_input) for other knobs and collectives, for an
/// epilogue, and where the map is not valid, sums, or puts a chunk where it does not belong.
[[nodiscard]] Plan make_exchange_plan(const Problem& problem, const Team& team, const Config& config,
                                      Collective collective, const OutputMap& map);

}  // namespace tilewire
