// Builds the tree of bounding boxes: splits the rectangles in halves by their centres along the longer side.
// Called by the race check.
#include "check/boxes.hpp"

namespace tilewire::checking {

BoxTree::BoxTree(std::vector<Rect> rects) : rects_(std::move(rects)) {
  for (int i = 0; i < std::ssize(rects_); ++i) {
    if (!rects_[i].empty()) order_.push_back(i);
  }
  if (!order_.empty()) build(0, std::ssize(order_), 1);
}

void BoxTree::build(int64_t begin, int64_t end, size_t box) {
  if (boxes_.size() <= box) boxes_.resize(box + 1);
  Rect bound = rects_[order_[begin]];
  for (int64_t i = begin + 1; i < end; ++i) {
    const Rect& rect = rects_[order_[i]];
    bound = {std::min(bound.row0, rect.row0), std::max(bound.row1, rect.row1), std::min(bound.col0, rect.col0),
             std::max(bound.col1, rect.col1)};
  }
  boxes_[box] = bound;
  if (end - begin <= kLeaf) return;
  const bool by_rows = bound.row1 - bound.row0 >= bound.col1 - bound.col0;
  const auto centre = [&](int i) {
    return by_rows ? rects_[i].row0 + rects_[i].row1 : rects_[i].col0 + rects_[i].col1;
  };
  const int64_t middle = begin + (end - begin) / 2;
  std::nth_element(order_.begin() + begin, order_.begin() + middle, order_.begin() + end,
                   [&](int x, int y) { return centre(x) < centre(y); });
  build(begin, middle, 2 * box);
  build(middle, end, 2 * box + 1);
}

}  // namespace tilewire::checking
