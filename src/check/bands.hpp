// What one rank's buffer holds: disjoint rectangles, kept in bands of rows, sorted by column in each.
// Used by coverage.cpp.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "check/content.hpp"

namespace tilewire::checking {

/// Nothing is written at first. The cost of a call is the number of bands and patches that it meets;
/// bands are cut where a write begins or ends, so writes of one grid of tiles share them.
class Bands {
 public:
  /// `shape` of the buffer.
  explicit Bands(Shape shape);

  /// The patches of `rect` in rows then columns, neighbours of equal content as one.
  [[nodiscard]] std::vector<Patch> read(const Rect& rect) const;
  /// The first part of `rect` that nothing was written to.
  [[nodiscard]] std::optional<Rect> first_gap(const Rect& rect) const;
  /// The first patch in `rect`.
  [[nodiscard]] std::optional<Patch> first_patch(const Rect& rect) const;
  /// Put a patch over whatever was there.
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
