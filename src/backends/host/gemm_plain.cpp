// Products by plain loops, for builds without oneDNN and for sanitizers.
// Called by Gemm.
#include <cstddef>

#include "backends/host/gemm.hpp"

namespace tilewire::host {

struct Kernels::State {};
const int64_t Kernels::kPart = int64_t{1} << 28;

std::string host_gemm_library() { return "plain loops"; }

Kernels::Kernels() = default;
Kernels::~Kernels() = default;

bool Kernels::takes(DType dtype) const { return dtype == DType::fp32; }

void Kernels::multiply(const Product& p, int /*threads*/) {
  const auto* a = static_cast<const float*>(p.a.data);
  const auto* b = static_cast<const float*>(p.b.data);
  const int64_t a_row = p.a.transposed ? 1 : p.a.stride;
  const int64_t a_col = p.a.transposed ? p.a.stride : 1;
  const int64_t b_row = p.b.transposed ? 1 : p.b.stride;
  const int64_t b_col = p.b.transposed ? p.b.stride : 1;
  for (int64_t i = 0; i < p.m; ++i) {
    float* c = static_cast<float*>(p.c) + i * p.c_stride;
    for (int64_t j = 0; j < p.n; ++j) {
      float sum = p.add ? c[j] : 0.0F;
      for (int64_t l = 0; l < p.k; ++l) sum += a[i * a_row + l * a_col] * b[l * b_row + j * b_col];
      c[j] = sum;
    }
  }
}

}  // namespace tilewire::host
