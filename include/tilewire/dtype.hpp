// Element types of tensors and their sizes; the layout of B.
// Used by problems, buffers and tensors; conversions live in src/core/convert.hpp.
#pragma once

#include <cstdint>

namespace tilewire {

enum class DType { fp32, bf16, fp16, int32 };

enum class BLayout { nk, kn };  ///< nk: B is stored [N,K], as the weight of a Linear layer; kn: [K,N]. A is [M,K]

/// Size of one element in bytes.
[[nodiscard]] constexpr int64_t bytes_of(DType dtype) { return dtype == DType::bf16 || dtype == DType::fp16 ? 2 : 4; }

}  // namespace tilewire
