// The GEMM kernel for bf16 with B stored as [N,K].
// Called by gemm_tiles.cpp.
#include "backends/cuda/kernels/gemm_bodies.cuh"

namespace tilewire::cuda {

std::vector<GemmBodyEntry> gemm_bodies_bf16_nk() { return gemm_bodies<__nv_bfloat16, false>(); }

}  // namespace tilewire::cuda
