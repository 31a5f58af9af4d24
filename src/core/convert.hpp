// Conversion between fp32 and the stored element types, row by row.
// Used by the host backend, references and verification.
#pragma once

#include <cstdint>

#include "tilewire/dtype.hpp"

namespace tilewire {

/// Convert `n` elements of `dtype` at `from` to fp32.
void load_row(const void* from, DType dtype, int64_t n, float* to);
/// Convert `n` fp32 values to `dtype` at `to`, rounded to nearest even. NaN stays NaN (of int8: 0), overflow becomes
/// Inf (of fp8_e4m3 and int8: the largest number).
void store_row(const float* from, int64_t n, void* to, DType dtype);

[[nodiscard]] float load_one(const void* from, DType dtype);
void store_one(float value, void* to, DType dtype);

[[nodiscard]] uint16_t bf16_from(float value);
[[nodiscard]] float from_bf16(uint16_t bits);
[[nodiscard]] uint16_t fp16_from(float value);
[[nodiscard]] float from_fp16(uint16_t bits);

}  // namespace tilewire
