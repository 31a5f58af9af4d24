// Whether two regions of a plan share elements.
// Used by passes, by regions_by_row.hpp, and by the cuda backend.
#pragma once

#include "tilewire/plan.hpp"

namespace tilewire {

[[nodiscard]] inline bool overlap(const Region& x, const Region& y) {
  return x.rank == y.rank && x.buffer == y.buffer && x.row < y.row + y.rows && y.row < x.row + x.rows &&
         x.col < y.col + y.cols && y.col < x.col + x.cols;
}

}  // namespace tilewire
