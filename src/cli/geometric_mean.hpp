// The geometric mean, by which ratios are averaged.
// Used by sim_compare.cpp, studies/ and tests.
#pragma once

#include <cmath>
#include <span>

namespace tilewire::cli {

/// Of values above 0; 0 if there are none.
[[nodiscard]] inline double geometric_mean(std::span<const double> values) {
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return values.empty() ? 0 : std::exp(logs / static_cast<double>(values.size()));
}

}  // namespace tilewire::cli
