// The GEMV kernels for bf16.
// Called by gemv.cu.
#include "backends/cuda/kernels/gemv_kernel.cuh"

namespace tilewire::cuda {

template GemvKernel gemv_kernel_of<__nv_bfloat16>(int rows, int tiles, BLayout layout);

}  // namespace tilewire::cuda
