// Regions of one buffer on one rank, found by the rows that they overlap.
// Used by implied_order.cpp and in_place.cpp.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "core/regions.hpp"

namespace tilewire {

/// Each region comes with an `Item`.
template <class Item>
class RegionsByRow {
 public:
  void add(const Region& region, Item item) {
    all_.emplace_back(region, std::move(item));
    most_rows_ = std::max(most_rows_, region.rows);
  }
  /// Call it after the last `add`.
  void sort() { std::ranges::sort(all_, {}, first_row); }
  /// Call visit(found region, its item) for each region that overlaps this one.
  template <class Visit>
  void for_each_overlap(const Region& region, const Visit& visit) const {
    const auto first = std::ranges::lower_bound(all_, region.row - most_rows_, {}, first_row);
    const auto last = std::ranges::lower_bound(all_, region.row + region.rows, {}, first_row);
    for (auto each = first; each != last; ++each) {
      if (overlap(each->first, region)) visit(each->first, each->second);
    }
  }

 private:
  static int64_t first_row(const std::pair<Region, Item>& each) { return each.first.row; }

  std::vector<std::pair<Region, Item>> all_{};
  int64_t most_rows_ = 0;  ///< rows of the tallest region
};

}  // namespace tilewire
