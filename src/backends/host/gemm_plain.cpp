// Products by plain loops, for builds without oneDNN and for sanitizers.
// Called by Gemm.
#include <cstddef>
#include <utility>

#include "backends/host/gemm.hpp"
#include "core/race_ranges.hpp"

namespace tilewire::host {

namespace {

void announce(const Operand& matrix, int64_t rows, int64_t cols) {
  if (matrix.transposed) std::swap(rows, cols);
  const auto* data = static_cast<const float*>(matrix.data);
  for (int64_t row = 0; row < rows; ++row)
    announce_read(data + row * matrix.stride, sizeof(float) * static_cast<size_t>(cols));
}

TILEWIRE_ANNOUNCED
void multiply_floats(const Product& p) {
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

}  // namespace

struct Kernels::State {};
const int64_t Kernels::kPart = int64_t{1} << 28;

std::string host_gemm_library() { return "plain loops"; }

Kernels::Kernels() = default;
Kernels::~Kernels() = default;

bool Kernels::takes(DType dtype) const { return dtype == DType::fp32; }

void Kernels::multiply(const Product& p, int /*threads*/) {
  announce(p.a, p.m, p.k);
  announce(p.b, p.k, p.n);
  for (int64_t i = 0; i < p.m; ++i)
    announce_write(static_cast<float*>(p.c) + i * p.c_stride, sizeof(float) * static_cast<size_t>(p.n));
  multiply_floats(p);
}

}  // namespace tilewire::host
