// The GEMM kernel for fp16 with B stored as [N,K].
// Called by gemm_tiles.cpp.
#include "backends/cuda/kernels/gemm_bodies.cuh"

namespace tilewire::cuda {

std::vector<GemmBodyEntry> gemm_bodies_fp16_nk() { return gemm_bodies<__half, false>(); }

}  // namespace tilewire::cuda
