// Small kernels for tests of groups.
// Used by group_test.cpp.
#include <cuda_runtime.h>

#include "backends/cuda/runtime/driver.hpp"
#include "cuda/kernels.hpp"

namespace tilewire::testing {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 264;

__global__ void store_kernel(uint32_t* words, int64_t count, uint32_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = seed + static_cast<uint32_t>(i);
  }
}

__global__ void count_kernel(const uint32_t* words, int64_t count, uint32_t seed, unsigned long long* wrong) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    if (words[i] != seed + static_cast<uint32_t>(i)) atomicAdd(wrong, 1ULL);
  }
}

__device__ uint64_t now_on_device() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void spin_kernel(const uint32_t* abort, uint64_t limit_ns, uint32_t* verdict) {
  const uint64_t begin = now_on_device();
  uint32_t seen = 0;
  while (seen == 0 && now_on_device() - begin < limit_ns) {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(abort) : "memory");
  }
  *verdict = seen != 0 ? 1 : 2;
}

}  // namespace

void store_words(uint32_t* words, int64_t count, uint32_t seed) {
  store_kernel<<<kBlocks, kThreads>>>(words, count, seed);
  cuda::check(cudaGetLastError(), "store_kernel");
  cuda::check(cudaDeviceSynchronize(), "store_kernel");
}

int64_t count_wrong_words(const uint32_t* words, int64_t count, uint32_t seed) {
  unsigned long long* wrong = nullptr;
  cuda::check(cudaMallocHost(reinterpret_cast<void**>(&wrong), sizeof(*wrong)), "cudaMallocHost");
  *wrong = 0;
  count_kernel<<<kBlocks, kThreads>>>(words, count, seed, wrong);
  const cudaError_t result = cudaDeviceSynchronize();
  const auto number = static_cast<int64_t>(*wrong);
  cudaFreeHost(wrong);
  cuda::check(result, "count_kernel");
  return number;
}

void start_spinning(const uint32_t* abort, double limit_s, uint32_t* verdict) {
  spin_kernel<<<1, 1>>>(abort, static_cast<uint64_t>(limit_s * 1e9), verdict);
  cuda::check(cudaGetLastError(), "spin_kernel");
}

}  // namespace tilewire::testing
