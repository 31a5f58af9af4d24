// The GEMM kernel for groups of bf16, with B stored as [N,K].
// Called by gemm_tiles.cpp.
#include "backends/cuda/kernels/gemm_bodies.cuh"

namespace tilewire::cuda {

std::vector<GemmBodyEntry> group_bodies_bf16_nk() { return group_bodies<__nv_bfloat16, false>(); }

}  // namespace tilewire::cuda
