// Candidates of an all-gather of rows before a GEMM.
// Called by fused.cpp.
#pragma once

#include <vector>

#include "tilewire/spi/schedule.hpp"

namespace tilewire {

/// Rows of the table of `fused`.
[[nodiscard]] std::vector<Way> ways_of_gathers();

}  // namespace tilewire
