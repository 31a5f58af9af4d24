// The symbolic content of one rank's buffer: disjoint rectangles in bands of rows, sorted by column in each band.
// Used by coverage.cpp.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "check/content.hpp"

namespace tilewire::checking {

/// Empty at first. A function's cost is linear in the bands and segments that it visits. Writes cut bands at their
/// first and last rows, so writes of one grid of tiles share bands.
class Bands {
 public:
  /// `shape` of the buffer.
  explicit Bands(Shape shape);

  /// The patches of `rect`, by rows, then columns. Neighbours of equal content are merged.
  [[nodiscard]] std::vector<Patch> read(const Rect& rect) const;
  /// The first part of `rect` that has not been written.
  [[nodiscard]] std::optional<Rect> first_gap(const Rect& rect) const;
  /// The first patch in `rect`.
  [[nodiscard]] std::optional<Patch> first_patch(const Rect& rect) const;
  /// Store a patch over the old content.
  void write(const Patch& patch);

 private:
  struct Segment {
    int64_t col0;
    int64_t col1;
    Content content;
    int writer;
  };
  struct Band {
    int64_t row1;
    std::vector<Segment> segments;
  };
  using Map = std::map<int64_t, Band>;  // by first row; the bands cover all rows

  [[nodiscard]] Map::const_iterator band_of(int64_t row) const { return std::prev(bands_.upper_bound(row)); }
  /// Segments of the band that end after `col`.
  [[nodiscard]] static std::vector<Segment>::const_iterator first_after(const Band& band, int64_t col);
  void cut(int64_t row);
  static void overwrite(std::vector<Segment>& segments, const Segment& segment);

  Map bands_;
};

}  // namespace tilewire::checking
