// How two ranges of rows or columns lie to each other.
// Used by planners.
#pragma once

#include <algorithm>

#include "tilewire/problem.hpp"

namespace tilewire {

[[nodiscard]] inline bool within(Range x, Range y) { return x.begin >= y.begin && x.end <= y.end; }
/// What both have; where they have nothing, its end is not behind its begin.
[[nodiscard]] inline Range common(Range x, Range y) { return {std::max(x.begin, y.begin), std::min(x.end, y.end)}; }
[[nodiscard]] inline bool meet(Range x, Range y) { return common(x, y).size() > 0; }

}  // namespace tilewire
