// Kernels before and after calls of operators.
// Called by calls.cpp.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backends/cuda/runtime/driver.hpp"
#include "cuda/call_kernels.hpp"

namespace tilewire::testing {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 64;

__device__ void store(float* to, float value) { *to = value; }
__device__ void store(__half* to, float value) { *to = __float2half_rn(value); }
__device__ void store(__nv_bfloat16* to, float value) { *to = __float2bfloat16_rn(value); }

template <class Element>
__global__ void fill_kernel(Element* to, int64_t count, uint64_t key) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    store(to + i, input_value(key, i));
  }
}

__global__ void hash_kernel(const uint32_t* words, int64_t count, unsigned long long* sum) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) mine += mix(words[i], i);
  for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_down_sync(~0U, mine, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

__device__ uint64_t now_on_device() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void delay_kernel(uint64_t ns) {
  const uint64_t begin = now_on_device();
  while (now_on_device() - begin < ns) {
  }
}

int64_t size_of(const Tensor& tensor) { return tensor.rows * tensor.cols; }

}  // namespace

void load_call_kernels() {
  const void* kernels[] = {reinterpret_cast<const void*>(fill_kernel<float>),
                           reinterpret_cast<const void*>(fill_kernel<__half>),
                           reinterpret_cast<const void*>(fill_kernel<__nv_bfloat16>),
                           reinterpret_cast<const void*>(hash_kernel), reinterpret_cast<const void*>(delay_kernel)};
  cudaFuncAttributes attributes{};
  for (const void* kernel : kernels) cuda::check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
}

void fill_input(const Tensor& tensor, uint64_t key, cudaStream_t stream) {
  const int64_t count = size_of(tensor);
  if (count == 0) return;
  if (tensor.dtype == DType::fp32) {
    fill_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<float*>(tensor.data), count, key);
  } else if (tensor.dtype == DType::fp16) {
    fill_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<__half*>(tensor.data), count, key);
  } else {
    fill_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(tensor.data), count, key);
  }
  cuda::check(cudaGetLastError(), "fill_kernel");
}

void poison(const Tensor& tensor, cudaStream_t stream) {
  if (size_of(tensor) == 0) return;
  const auto bytes = static_cast<size_t>(size_of(tensor) * bytes_of(tensor.dtype));
  cuda::check(cudaMemsetAsync(tensor.data, 0xFF, bytes, stream), "cudaMemsetAsync");
}

void add_hash(const Tensor& tensor, uint64_t* sum, cudaStream_t stream) {
  const int64_t words = size_of(tensor) * bytes_of(tensor.dtype) / 4;
  if (words == 0) return;
  hash_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint32_t*>(tensor.data), words,
                                                reinterpret_cast<unsigned long long*>(sum));
  cuda::check(cudaGetLastError(), "hash_kernel");
}

void delay(double us, cudaStream_t stream) {
  delay_kernel<<<1, 1, 0, stream>>>(static_cast<uint64_t>(us * 1e3));
  cuda::check(cudaGetLastError(), "delay_kernel");
}

}  // namespace tilewire::testing
