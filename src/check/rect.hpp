// A rectangle of elements: half-open rows and columns. Used by coverage and the race check.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tilewire/plan.hpp"

namespace tilewire::checking {

struct Rect {
  int64_t row0 = 0;
  int64_t row1 = 0;
  int64_t col0 = 0;
  int64_t col1 = 0;

  bool operator==(const Rect&) const = default;
  [[nodiscard]] bool empty() const { return row0 >= row1 || col0 >= col1; }
};

[[nodiscard]] inline Rect rect_of(const Region& region) {
  return {region.row, region.row + region.rows, region.col, region.col + region.cols};
}

[[nodiscard]] inline Rect intersect(const Rect& x, const Rect& y) {
  return {std::max(x.row0, y.row0), std::min(x.row1, y.row1), std::max(x.col0, y.col0), std::min(x.col1, y.col1)};
}

[[nodiscard]] inline Rect shifted(const Rect& rect, int64_t rows, int64_t cols) {
  return {rect.row0 + rows, rect.row1 + rows, rect.col0 + cols, rect.col1 + cols};
}

/// `rect` as a region of a rank's buffer.
[[nodiscard]] inline Region region_of(int rank, int buffer, const Rect& rect) {
  return {.rank = rank,
          .buffer = buffer,
          .row = rect.row0,
          .rows = rect.row1 - rect.row0,
          .col = rect.col0,
          .cols = rect.col1 - rect.col0};
}

}  // namespace tilewire::checking
