// Times of programs on a group, and values that all ranks agree on.
// Called by the tuner and the bench.
#include "tuner/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/text.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::tuner {
double largest(Group& group, double mine) {
  double result = 0;
  // NOTE: every rank reads the texts, its own too, so that all hold the same bits.
  for (const std::string& text : group.all_gather(fmt::format("{:.3f}", mine))) {
    result = std::max(result, std::strtod(text.c_str(), nullptr));
  }
  return result;
}

std::string first_text(Group& group, const std::string& mine) {
  for (const std::string& text : group.all_gather(mine)) {
    if (!text.empty()) return text;
  }
  return {};
}

CallTime time_calls(Group& group, Program& program, const RankTensors& tensors, const Burst& burst) {
  using Clock = std::chrono::steady_clock;
  group.barrier();
  if (const auto time = program.time_on_device(tensors.inputs(), tensors.outputs(), burst)) {
    return {largest(group, time->us), true, largest(group, median(time->enqueue_us))};
  }
  const Clock::time_point start = Clock::now();
  program.run(tensors.inputs(), tensors.outputs(), {.trace = burst.trace});
  return {largest(group, std::chrono::duration<double, std::micro>(Clock::now() - start).count()), false};
}

int calls_in_burst(double call_us) {
  constexpr double kBurstUs = 8000;
  constexpr int kMost = 20;
  return static_cast<int>(std::clamp(kBurstUs / std::max(call_us, 1.0), 1.0, double{kMost}));
}

void pause_before_burst() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

bool wants_graphs(int64_t rows, double us) {
  constexpr double kShortUs = 150;
  return rows <= kMostGraphRows || us < kShortUs;
}

double time_call(Group& group, Program& program, const RankTensors& tensors, bool graph) {
  constexpr int kCalls = 3;
  constexpr int kReplays = 20;
  // NOTE: cold: between two calls of an operator whoever calls it has done something else, and its code is gone, too.
  return time_calls(group, program, tensors, {.calls = graph ? kReplays : kCalls, .graph = graph, .cold = true}).us;
}

double median(std::vector<double> values) {
  ensure(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tilewire::tuner
