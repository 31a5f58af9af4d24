// The GEMM kernel for bf16 with B stored as [K,N].
// Called by gemm_tiles.cpp.
#include "backends/cuda/kernels/gemm_bodies.cuh"

namespace tilewire::cuda {

std::vector<GemmBodyEntry> gemm_bodies_bf16_kn() { return gemm_bodies<__nv_bfloat16, true>(); }

}  // namespace tilewire::cuda
