// Times of programs on a group, and values that all ranks agree on.
// Called by the tuner.
#include "tuner/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "core/text.hpp"

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

double time_call(Group& group, Program& program, const RankTensors& tensors) {
  using Clock = std::chrono::steady_clock;
  group.barrier();
  const Clock::time_point start = Clock::now();
  program.run(tensors.inputs(), tensors.outputs(), {});
  return largest(group, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
}

double median(std::vector<double> values) {
  ensure(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tilewire::tuner
