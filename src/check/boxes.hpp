// Finds the rectangles of a fixed set that intersect a given one: a tree of bounding boxes.
// Used by the race check.
#pragma once

#include <cstdint>
#include <vector>

#include "check/rect.hpp"

namespace tilewire::checking {

class BoxTree {
 public:
  /// Empty rectangles intersect nothing.
  explicit BoxTree(std::vector<Rect> rects);

  /// Call visit(index) for every rectangle that shares an element with `rect`.
  template <class Visit>
  void for_each_meeting(const Rect& rect, const Visit& visit) const {
    if (!rect.empty() && !order_.empty()) descend(rect, 0, std::ssize(order_), 1, visit);
  }

 private:
  static constexpr int64_t kLeaf = 8;

  template <class Visit>
  void descend(const Rect& rect, int64_t begin, int64_t end, size_t box, const Visit& visit) const {
    if (intersect(rect, boxes_[box]).empty()) return;
    if (end - begin > kLeaf) {
      const int64_t middle = begin + (end - begin) / 2;
      descend(rect, begin, middle, 2 * box, visit);
      descend(rect, middle, end, 2 * box + 1, visit);
      return;
    }
    for (int64_t i = begin; i < end; ++i) {
      if (!intersect(rect, rects_[order_[i]]).empty()) visit(order_[i]);
    }
  }
  void build(int64_t begin, int64_t end, size_t box);

  std::vector<Rect> rects_;
  std::vector<int> order_;   ///< indices of rectangles in tree order
  std::vector<Rect> boxes_;  ///< the halves of box i are boxes 2 i and 2 i + 1
};

}  // namespace tilewire::checking
