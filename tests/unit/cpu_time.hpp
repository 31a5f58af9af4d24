// The processor time of some work: other programs may run at the same time.
// Used by check_cost_test.cpp, sim_speed_test.cpp, and t3_layer_test.cpp of tests/studies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <queue>
#include <vector>

namespace tilewire {

/// Whether times are meaningful: not those of sanitized or unoptimised builds.
#if defined(TILEWIRE_ASAN) || defined(TILEWIRE_TSAN) || !defined(NDEBUG)
inline constexpr bool kTimesCount = false;
#else
inline constexpr bool kTimesCount = true;
#endif

/// Seconds of this process, of all of its threads.
template <typename Work>
double cpu_seconds(const Work& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

/// The time of a fixed piece of work now, relative to an idle machine, at least 1: a heap and accesses to memory, as in
/// a simulation. Other programs take caches and halves of cores, and hosts count the time that they give to other
/// machines.
inline double slowness() {
  constexpr double kIdleSeconds = 0.126;
  constexpr uint64_t kSteps = 1'500'000;
  std::vector<uint64_t> memory(size_t{1} << 19);
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap;
  uint64_t random = 1;
  const double seconds = cpu_seconds([&] {
    for (uint64_t step = 0; step < kSteps; ++step) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      uint64_t& word = memory[random >> 45];
      const uint64_t now = heap.size() < 4096 ? 0 : heap.top();
      if (heap.size() == 4096) heap.pop();
      word += now;
      heap.push(now + (random >> 54) + word % 2);
    }
  });
  return std::max(1.0, seconds / kIdleSeconds);
}

/// An estimate of cpu_seconds on an idle machine.
template <typename Work>
double idle_seconds(const Work& work) {
  const double before = slowness();
  const double seconds = cpu_seconds(work);
  return seconds / std::max(before, slowness());
}

}  // namespace tilewire
