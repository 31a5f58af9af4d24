// Whether two matrices in memory have an element in common.
// Called by require_tensors, which lets no output share memory with another tensor of the call.
#pragma once

#include "tilewire/tensor.hpp"

namespace tilewire {

/// Whether x and y share memory. Exact where rows are equally far apart, such as those of two blocks of columns of one
/// matrix, or where one of them has one row; else whether all that lies between their first and last elements does.
/// Their elements must be addressable: see Op::run.
[[nodiscard]] bool overlap(const Tensor& x, const Tensor& y);

}  // namespace tilewire
