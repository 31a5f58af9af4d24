// Random inputs of a product, and its reference, by plain kernels in double.
// Included by gemm_case.cuh.
#pragma once

#include <cstddef>

namespace {

template <typename T>
__global__ void fill(T* p, size_t n, unsigned seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    unsigned h = static_cast<unsigned>(i) * 2654435761u + seed;
    h = (h ^ h >> 15) * 2246822519u;
    p[i] = static_cast<T>(static_cast<int>((h ^ h >> 13) & 0xffff) / 32768.f - 1.f);
  }
}

/// The plain product over k in [k_begin, k_end), in double; with `residual` also GELU, a factor of one half, and the
/// residual.
template <typename T>
__global__ void reference(const T* a, const T* b, const T* bias, const T* residual, double* c, int m, int n, int k,
                          int k_begin, int k_end, bool b_is_kn) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y;
  if (col >= n || row >= m) return;
  double sum = bias != nullptr ? static_cast<float>(bias[col]) : 0.0;
  for (int i = k_begin; i < k_end; ++i) {
    const size_t at = b_is_kn ? static_cast<size_t>(i) * n + col : static_cast<size_t>(col) * k + i;
    sum += static_cast<double>(static_cast<float>(a[static_cast<size_t>(row) * k + i])) * static_cast<float>(b[at]);
  }
  const size_t place = static_cast<size_t>(row) * n + col;
  if (residual != nullptr) {
    sum *= 0.5 * 0.5 * (1 + erf(sum / sqrt(2.0)));
    sum += static_cast<double>(static_cast<float>(residual[place]));
  }
  c[place] = sum;
}

template <typename T>
__global__ void add_matrix(double* to, const T* from, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    to[i] += static_cast<double>(static_cast<float>(from[i]));
  }
}

}  // namespace
