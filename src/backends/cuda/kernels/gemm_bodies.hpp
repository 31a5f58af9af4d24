// The compiled bodies of the GEMM kernel, one source file per dtype and layout of B, so that they compile in parallel.
// Used by gemm_tiles.cpp.
#pragma once

#include <vector>

#include "backends/cuda/kernels/gemm_tiles.hpp"

namespace tilewire::cuda {

/// One instantiation.
struct GemmBodyEntry {
  GemmBodyKind kind{};
  const void* function = nullptr;  ///< a kernel that takes one GemmLaunch
  int shared_bytes = 0;            ///< dynamic shared memory of a CTA
};

[[nodiscard]] std::vector<GemmBodyEntry> gemm_bodies_bf16_nk();
[[nodiscard]] std::vector<GemmBodyEntry> gemm_bodies_bf16_kn();
[[nodiscard]] std::vector<GemmBodyEntry> gemm_bodies_fp16_nk();
[[nodiscard]] std::vector<GemmBodyEntry> gemm_bodies_fp16_kn();
[[nodiscard]] std::vector<GemmBodyEntry> group_bodies_bf16_nk();
[[nodiscard]] std::vector<GemmBodyEntry> group_bodies_bf16_kn();
[[nodiscard]] std::vector<GemmBodyEntry> group_bodies_fp16_nk();
[[nodiscard]] std::vector<GemmBodyEntry> group_bodies_fp16_kn();

}  // namespace tilewire::cuda
