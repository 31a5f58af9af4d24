// The parameters of the GEMV kernel for a rank whose sums are joined to its tiles.
// Called by lane_tables.cpp.
#pragma once

#include <optional>

#include "backends/cuda/tables/rank_view.hpp"

namespace tilewire::cuda {

/// Whether the GEMV kernel executes the rank's lanes, provided that its tensors are aligned.
[[nodiscard]] bool has_joined_sums(const Plan& plan, int rank);

/// The table of the rank's tiles and sums, and the names of their tasks in `view.out`; nothing, and no names, if
/// tensors are not aligned to 16 bytes, or tiles do not follow one another.
[[nodiscard]] std::optional<GemvTable> gemv_table(RankView& view);

}  // namespace tilewire::cuda
