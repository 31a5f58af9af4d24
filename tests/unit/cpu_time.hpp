// How much processor time something takes: other programs may run at the same time.
// Used by check_cost_test.cpp and sim_speed_test.cpp.
#pragma once

#include <ctime>

namespace tilewire {

/// Whether times say something: not those of sanitized or unoptimised builds.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
inline constexpr bool kTimesCount = false;
#else
inline constexpr bool kTimesCount = true;
#endif

/// Seconds of this process, of all its threads.
template <typename Work>
double cpu_seconds(const Work& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace tilewire
