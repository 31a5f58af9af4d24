// The parameters of the kernel of rows for a rank whose sums of rows are joined to its copies.
// Called by lane_tables.cpp.
#pragma once

#include <optional>

#include "backends/cuda/tables/rank_view.hpp"

namespace tilewire::cuda {

/// The table of the rank's copies, sums and norms, and the names of their tasks in `view.out`; nothing, and no names,
/// if tensors are not aligned to 16 bytes, or the copies are not equal parts of rows.
[[nodiscard]] std::optional<RowTable> row_table(RankView& view);

}  // namespace tilewire::cuda
