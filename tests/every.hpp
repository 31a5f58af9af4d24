// Many cases that are alike: the optimised build tests them all, and with sanitizers, which take ten times as long,
// every fifth is tested.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace tilewire::testing {

#if defined(TILEWIRE_ASAN) || defined(TILEWIRE_TSAN)
/// NOTE: no multiple of 2 or 3: knobs have so many values, and each should be among those that are left.
inline constexpr size_t kEvery = 5;
#else
inline constexpr size_t kEvery = 1;
#endif

template <class Case>
std::vector<Case> every(std::vector<Case> cases) {
  size_t left = 0;
  for (size_t i = 0; i < cases.size(); i += kEvery) std::swap(cases[left++], cases[i]);
  cases.erase(cases.begin() + static_cast<std::ptrdiff_t>(left), cases.end());
  return cases;
}

}  // namespace tilewire::testing
