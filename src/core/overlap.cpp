// Whether two matrices in memory have an element in common.
// Called by require_tensors.
#include "core/overlap.hpp"

#include <algorithm>

namespace tilewire {
namespace {

/// A matrix as byte addresses.
struct Footprint {
  uintptr_t begin = 0;
  int64_t rows = 0;
  int64_t width = 0;   ///< bytes of a row
  int64_t stride = 0;  ///< bytes from one row to the next; 0 if there is one row
  uintptr_t end = 0;
};

Footprint footprint_of(const Tensor& tensor) {
  const int64_t size = bytes_of(tensor.dtype);
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
  const int64_t span = tensor.rows == 1 ? tensor.cols : (tensor.rows - 1) * tensor.row_stride + tensor.cols;
  return {begin, tensor.rows, tensor.cols * size, tensor.row_stride * (tensor.rows == 1 ? 0 : size),
          begin + static_cast<uintptr_t>(span * size)};
}

}  // namespace

bool overlap(const Tensor& x, const Tensor& y) {
  if (x.rows == 0 || x.cols == 0 || y.rows == 0 || y.cols == 0) return false;
  const Footprint a = footprint_of(x);
  const Footprint b = footprint_of(y);
  if (a.end <= b.begin || b.end <= a.begin) return false;
  const int64_t stride = std::max(a.stride, b.stride);
  const bool equal = a.rows == 1 || b.rows == 1 || a.stride == b.stride;
  if (!equal || stride < std::max(a.width, b.width)) return true;
  // Row j of y begins `inside` bytes behind the start of row `ahead` + j of x, and may reach into the next row of x.
  const auto distance = static_cast<int64_t>(b.begin - a.begin);
  const int64_t inside = (distance % stride + stride) % stride;
  const int64_t ahead = (distance - inside) / stride;
  const auto meet = [&](int64_t by) { return by < a.rows && by + b.rows > 0; };
  return (inside < a.width && meet(ahead)) || (inside + b.width > stride && meet(ahead + 1));
}

}  // namespace tilewire
