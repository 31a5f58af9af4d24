// Element types of tensors and their sizes; the layout of B.
// Used by problems, buffers and tensors; conversions live in src/core/convert.hpp.
#pragma once

#include <cstdint>

namespace tilewire {

/// fp8_e4m3 (largest number 448, no infinity) and int8 are types of quantised outputs only.
enum class DType { fp32, bf16, fp16, int32, fp8_e4m3, int8 };

enum class BLayout { nk, kn };  ///< nk: B is stored [N,K], as the weight of a Linear layer; kn: [K,N]. A is [M,K]

/// Size of one element in bytes.
[[nodiscard]] constexpr int64_t bytes_of(DType dtype) {
  if (dtype == DType::fp8_e4m3 || dtype == DType::int8) return 1;
  return dtype == DType::bf16 || dtype == DType::fp16 ? 2 : 4;
}

/// Whether tasks compute with elements of this type.
[[nodiscard]] constexpr bool is_number(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16;
}

/// Whether elements of this type are quantised: multiples of a scale.
[[nodiscard]] constexpr bool is_quantised(DType dtype) { return bytes_of(dtype) == 1; }

/// The largest quantised number: each row's largest absolute value becomes this one.
[[nodiscard]] constexpr float largest_of(DType dtype) { return dtype == DType::int8 ? 127.0F : 448.0F; }

}  // namespace tilewire
