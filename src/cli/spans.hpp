// Spans of time: the lengths of their union and of intersections.
// Used by traces.cpp and report.cpp.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace tilewire::cli {

/// Pairs of begin and end, in any order; they may overlap.
template <class Time>
using Spans = std::vector<std::pair<Time, Time>>;

/// The length of their union.
template <class Time>
[[nodiscard]] Time covered(Spans<Time> spans) {
  std::ranges::sort(spans);
  Time sum{};
  Time end = spans.empty() ? Time{} : spans.front().first;
  for (const auto& [from, to] : spans) {
    sum += std::max(Time{}, to - std::max(from, end));
    end = std::max(end, to);
  }
  return sum;
}

/// The length of the intersection of both unions.
template <class Time>
[[nodiscard]] Time covered_by_both(const Spans<Time>& x, const Spans<Time>& y) {
  Spans<Time> all = x;
  all.insert(all.end(), y.begin(), y.end());
  return covered(x) + covered(y) - covered(std::move(all));
}

}  // namespace tilewire::cli
