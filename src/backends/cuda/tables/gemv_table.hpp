// The parameters of the GEMV kernel for a rank whose sums are joined to its tiles, or that has tiles alone.
// Called by lane_tables.cpp.
#pragma once

#include <optional>

#include "backends/cuda/tables/rank_view.hpp"

namespace tilewire::cuda {

/// Whether the GEMV kernel or the kernel of rows takes the rank's call, if tensors are aligned.
[[nodiscard]] bool has_few_rows(const Plan& plan, int rank);

/// The table of the rank's tiles and sums, and the names of their tasks in `view.out`; nothing, and no names, if
/// tensors are not aligned to 16 bytes, or tiles do not follow one another.
[[nodiscard]] std::optional<GemvTable> gemv_table(RankView& view);

}  // namespace tilewire::cuda
