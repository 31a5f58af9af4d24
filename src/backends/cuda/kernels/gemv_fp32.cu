// The GEMV kernels for fp32.
// Called by gemv.cu.
#include "backends/cuda/kernels/gemv_kernel.cuh"

namespace tilewire::cuda {

template GemvKernel gemv_kernel_of<float>(int rows, int tiles, BLayout layout);

}  // namespace tilewire::cuda
