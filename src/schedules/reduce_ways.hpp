// Candidates of a reduce-scatter of rows, or an all-reduce, after a GEMM or alone.
// Called by fused.cpp and sequential.cpp.
#pragma once

#include <vector>

#include "tilewire/spi/schedule.hpp"

namespace tilewire {

/// Rows of the table of `fused`.
[[nodiscard]] std::vector<Way> ways_of_reductions();
/// A row of the table of `sequential`: one GEMM of the library between short kernels of one stream, for few or some
/// rows of gathers and reductions.
[[nodiscard]] Way stream_ordered_gemm();

}  // namespace tilewire
