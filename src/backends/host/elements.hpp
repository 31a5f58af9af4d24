// Loops over rows of elements: copy, sum, accumulate.
// Called by tasks.cpp.
#pragma once

#include "backends/host/addresses.hpp"

namespace tilewire::host {

/// Same shape and dtype, any strides.
void copy_block(const Block& from, const Block& to);
/// sums[i] += row[i], in fp32. `spare`: room for n values.
void add_row(const std::byte* row, DType dtype, int64_t n, float* sums, float* spare);
void scale(float* values, int64_t n, float factor);
/// Round each value to `dtype` and add it to what is there; atomic for each element.
void accumulate(const float* values, int64_t n, std::byte* to, DType dtype);

}  // namespace tilewire::host
