// The GEMM kernel for groups of fp16, with B stored as [K,N].
// Called by gemm_tiles.cpp.
#include "backends/cuda/kernels/gemm_bodies.cuh"

namespace tilewire::cuda {

std::vector<GemmBodyEntry> group_bodies_fp16_kn() { return group_bodies<__half, true>(); }

}  // namespace tilewire::cuda
