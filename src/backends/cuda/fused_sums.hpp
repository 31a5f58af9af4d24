// Which sums across ranks the GEMM tiles that make their last part complete themselves, instead of a lane of sums.
// Called when a program is loaded.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// A tile, and the task that sums its result with what other ranks sent. Lanes: indices among the rank's own lanes.
struct FusedSum {
  int tile_lane = 0;
  int64_t tile = 0;
  int sum_lane = 0;
  int64_t sum = 0;
  int own = 0;                ///< which of the sum's reads the tile writes
  std::vector<Wait> waits{};  ///< the sum's, without what the tile itself posts; at_least 0 = nothing left
};

/// The sums of one rank that its tiles can complete, in the order of the tiles. Nobody but the sum reads what such a
/// tile would have written, so that it is not written at all. The tile then waits for other ranks' parts when its own
/// is made; where that might be for ever (TileNeeds), the sum stays in its lane.
[[nodiscard]] std::vector<FusedSum> fused_sums(const Plan& whole, int rank);

}  // namespace tilewire::cuda
