// Whether two matrices in memory have an element in common.
// Called by require_tensors: no output may share memory with another tensor of the call.
#pragma once

#include "tilewire/tensor.hpp"

namespace tilewire {

/// Whether x and y share memory. Exact if their strides are equal (column blocks of one matrix) or one of them has a
/// single row; else the whole spans are compared. All elements must be addressable: see Op::run.
[[nodiscard]] bool overlap(const Tensor& x, const Tensor& y);

}  // namespace tilewire
