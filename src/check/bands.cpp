// Reads and writes the bands of a buffer.
// Called by coverage.cpp.
#include "check/bands.hpp"

namespace tilewire::checking {

Bands::Bands(Shape shape) {
  if (shape.rows > 0) bands_.emplace(0, Band{shape.rows, {}});
}

std::vector<Bands::Segment>::const_iterator Bands::first_after(const Band& band, int64_t col) {
  return std::ranges::upper_bound(band.segments, col, {}, &Segment::col1);
}

std::vector<Patch> Bands::read(const Rect& rect) const {
  std::vector<Patch> patches;
  if (rect.empty()) return patches;
  size_t above = 0;  // index of the first patch of the last band
  for (auto band = band_of(rect.row0); band != bands_.end() && band->first < rect.row1; ++band) {
    const int64_t row0 = std::max(band->first, rect.row0);
    const int64_t row1 = std::min(band->second.row1, rect.row1);
    const size_t begin = patches.size();
    const auto& segments = band->second.segments;
    for (auto s = first_after(band->second, rect.col0); s != segments.end() && s->col0 < rect.col1; ++s) {
      const int64_t col0 = std::max(s->col0, rect.col0);
      const int64_t col1 = std::min(s->col1, rect.col1);
      const bool joins =
          patches.size() > begin && patches.back().at.col1 == col0 && patches.back().content == s->content;
      if (joins) {
        patches.back().at.col1 = col1;
      } else {
        patches.push_back({{row0, row1, col0, col1}, s->content, s->writer});
      }
    }
    const bool repeats = patches.size() - begin == begin - above && begin > above &&
                         std::equal(patches.begin() + above, patches.begin() + begin, patches.begin() + begin,
                                    [&](const Patch& x, const Patch& y) {
                                      return x.at.row1 == row0 && x.at.col0 == y.at.col0 && x.at.col1 == y.at.col1 &&
                                             x.content == y.content;
                                    });
    if (repeats) {
      patches.resize(begin);
      for (size_t i = above; i < begin; ++i) patches[i].at.row1 = row1;
    } else {
      above = begin;
    }
  }
  return patches;
}

std::optional<Rect> Bands::first_gap(const Rect& rect) const {
  if (rect.empty()) return std::nullopt;
  for (auto band = band_of(rect.row0); band != bands_.end() && band->first < rect.row1; ++band) {
    const Rect rows{std::max(band->first, rect.row0), std::min(band->second.row1, rect.row1), rect.col0, rect.col1};
    int64_t col = rect.col0;
    const auto& segments = band->second.segments;
    for (auto s = first_after(band->second, col); s != segments.end() && s->col0 <= col; ++s) col = s->col1;
    if (col >= rect.col1) continue;
    const auto next = first_after(band->second, col);
    return Rect{rows.row0, rows.row1, col, next == segments.end() ? rect.col1 : std::min(rect.col1, next->col0)};
  }
  return std::nullopt;
}

std::optional<Patch> Bands::first_patch(const Rect& rect) const {
  if (rect.empty()) return std::nullopt;
  for (auto band = band_of(rect.row0); band != bands_.end() && band->first < rect.row1; ++band) {
    const auto s = first_after(band->second, rect.col0);
    if (s == band->second.segments.end() || s->col0 >= rect.col1) continue;
    return Patch{intersect(rect, {band->first, band->second.row1, s->col0, s->col1}), s->content, s->writer};
  }
  return std::nullopt;
}

void Bands::cut(int64_t row) {
  const auto band = std::prev(bands_.upper_bound(row));
  if (band->first == row || band->second.row1 <= row) return;
  bands_.emplace(row, band->second);
  band->second.row1 = row;
}

void Bands::overwrite(std::vector<Segment>& segments, const Segment& segment) {
  const auto begin = std::ranges::upper_bound(segments, segment.col0, {}, &Segment::col1);
  auto end = begin;
  while (end != segments.end() && end->col0 < segment.col1) ++end;
  std::vector<Segment> fresh;
  if (begin != end && begin->col0 < segment.col0) {
    fresh.push_back(*begin);
    fresh.back().col1 = segment.col0;
  }
  fresh.push_back(segment);
  if (begin != end && std::prev(end)->col1 > segment.col1) {
    fresh.push_back(*std::prev(end));
    fresh.back().col0 = segment.col1;
  }
  const auto at = segments.erase(begin, end);
  segments.insert(at, fresh.begin(), fresh.end());
}

void Bands::write(const Patch& patch) {
  if (patch.at.empty()) return;
  cut(patch.at.row0);
  cut(patch.at.row1);
  for (auto band = bands_.find(patch.at.row0); band != bands_.end() && band->first < patch.at.row1; ++band) {
    overwrite(band->second.segments, {patch.at.col0, patch.at.col1, patch.content, patch.writer});
  }
}

}  // namespace tilewire::checking
