// The GEMM kernel for groups of fp16, with B stored as [N,K].
// Called by gemm_tiles.cpp.
#include "backends/cuda/kernels/gemm_bodies.cuh"

namespace tilewire::cuda {

std::vector<GemmBodyEntry> group_bodies_fp16_nk() { return group_bodies<__half, false>(); }

}  // namespace tilewire::cuda
