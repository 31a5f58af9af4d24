// Loops over rows of elements: copy, sum, accumulate.
// Called by tasks.cpp.
#pragma once

#include "backends/host/addresses.hpp"
#include "tilewire/norm.hpp"

namespace tilewire::host {

/// Copy a block. Same shape and dtype, any strides.
void copy_block(const Block& from, const Block& to);
/// sums[i] += row[i], in fp32. `spare` has room for n values.
void add_row(const std::byte* row, DType dtype, int64_t n, float* sums, float* spare);
void scale(float* values, int64_t n, float factor);
/// Normalise a row in fp32: torch's rms_norm or layer_norm. `bias` is null if there is none.
void normalise(const Norm& norm, float* values, int64_t n, const float* weight, const float* bias);
/// Divide a row by its scale (Norm::out_dtype), in fp32. Returns the scale.
[[nodiscard]] float quantise(DType dtype, float* values, int64_t n);
/// Round each value to `dtype` and add it to the element in memory; atomic per element.
void accumulate(const float* values, int64_t n, std::byte* to, DType dtype);
/// Store LL data (core/ll.hpp). An element whose bits are all 1, a NaN, is stored as another NaN.
void publish(const std::byte* from, int64_t n, std::byte* to, DType dtype);
/// Take LL data up to the first missing element, and set all bits of the taken elements to 1. Returns the number taken.
[[nodiscard]] int64_t take_published(std::byte* from, int64_t n, std::byte* to, DType dtype);

}  // namespace tilewire::host
