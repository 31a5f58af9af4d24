// Products of any dtype: operands that the library does not take are converted to fp32, block by block.
// Called by the tasks of host workers.
#include "backends/host/gemm.hpp"

#include <algorithm>
#include <cstring>

#include "core/convert.hpp"

namespace tilewire::host {
namespace {

/// The operand that begins at element (row, col) of another one.
Operand part_of(const Operand& whole, int64_t row, int64_t col) {
  Operand part = whole;
  const int64_t elements = whole.transposed ? col * whole.stride + row : row * whole.stride + col;
  part.data = static_cast<const std::byte*>(whole.data) + elements * bytes_of(whole.dtype);
  return part;
}

}  // namespace

void Gemm::begin_call(int threads, const std::function<void()>& check) {
  threads_ = threads;
  check_ = &check;
  forget();
}

void Gemm::forget() {
  a_.from.data = nullptr;
  b_.from.data = nullptr;
}

bool Gemm::stores(DType in, DType out) const { return out == DType::fp32 || (out == in && kernels_.takes(in)); }

void Gemm::multiply(const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) {
    const auto bytes = static_cast<size_t>(product.n * bytes_of(product.c_dtype));
    for (int64_t row = 0; row < product.m; ++row) {
      std::memset(static_cast<std::byte*>(product.c) + row * product.c_stride * bytes_of(product.c_dtype), 0, bytes);
    }
    return;
  }
  const bool native = product.a.dtype == product.b.dtype && kernels_.takes(product.a.dtype);
  native ? multiply_native(product) : multiply_converted(product);
}

void Gemm::multiply_native(const Product& product) {
  // Cut the product into parts of a fraction of a second, so that a call ends soon after a peer's death.
  constexpr int64_t kLeast = 32;
  const int64_t most = std::max(kLeast, Kernels::kPart * threads_ / (2 * product.n * product.k));
  for (int64_t row = 0; row < product.m; row += most) {
    if (check_ != nullptr) (*check_)();
    Product part = product;
    part.m = std::min(most, product.m - row);
    part.a = part_of(product.a, row, 0);
    part.c = static_cast<std::byte*>(product.c) + row * product.c_stride * bytes_of(product.c_dtype);
    kernels_.multiply(part, threads_);
  }
}

Operand Gemm::convert(const Operand& from, int64_t rows, int64_t cols, Converted& into) {
  const int64_t stored_rows = from.transposed ? cols : rows;
  const int64_t stored_cols = from.transposed ? rows : cols;
  const Operand result{nullptr, DType::fp32, stored_cols, from.transposed};
  // NOTE: an address holds the same data for a whole call only because a plan stores each element of workspace at most
  // once per call (docs/plan.md).
  const bool kept = into.from == from && into.rows == rows && into.cols == cols && from.data != nullptr;
  if (!kept) {
    into.values.resize(static_cast<size_t>(rows * cols));
    for (int64_t row = 0; row < stored_rows; ++row) {
      const auto* source = static_cast<const std::byte*>(from.data) + row * from.stride * bytes_of(from.dtype);
      load_row(source, from.dtype, stored_cols, into.values.data() + row * stored_cols);
    }
    into.from = from;
    into.rows = rows;
    into.cols = cols;
  }
  Operand converted = result;
  converted.data = into.values.data();
  return converted;
}

void Gemm::multiply_converted(const Product& product) {
  // Blocks bound the memory of converted operands. An operand of a tile is usually one block.
  constexpr int64_t kRows = 512;
  constexpr int64_t kDepth = 4096;
  for (int64_t row = 0; row < product.m; row += kRows) {
    for (int64_t col = 0; col < product.n; col += kRows) {
      for (int64_t depth = 0; depth < product.k; depth += kDepth) {
        Product block = product;
        block.m = std::min(kRows, product.m - row);
        block.n = std::min(kRows, product.n - col);
        block.k = std::min(kDepth, product.k - depth);
        block.a = convert(part_of(product.a, row, depth), block.m, block.k, a_);
        block.b = convert(part_of(product.b, depth, col), block.k, block.n, b_);
        block.c = static_cast<float*>(product.c) + row * product.c_stride + col;
        block.add = product.add || depth > 0;
        if (check_ != nullptr) (*check_)();
        kernels_.multiply(block, threads_);
      }
    }
  }
}

}  // namespace tilewire::host
