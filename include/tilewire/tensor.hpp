// A view of a matrix in memory. Owned by the caller or by a Group's arena.
#pragma once

#include <cstdint>

#include "tilewire/dtype.hpp"

namespace tilewire {

/// rows x cols elements, row by row. `row_stride` is the number of elements from one row to the next.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::fp32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;

  bool operator==(const Tensor&) const = default;
};

/// A dense view.
[[nodiscard]] inline Tensor make_tensor(void* data, DType dtype, int64_t rows, int64_t cols) {
  return {data, dtype, rows, cols, cols};
}

}  // namespace tilewire
