// The GEMV kernels for fp16.
// Called by gemv.cu.
#include "backends/cuda/kernels/gemv_kernel.cuh"

namespace tilewire::cuda {

template GemvKernel gemv_kernel_of<__half>(int rows, int tiles, BLayout layout);

}  // namespace tilewire::cuda
