// Removes waits and posts that polling of LL data replaces.
// Listed in lower.cpp.
#include <algorithm>
#include <utility>
#include <vector>

#include "check/first_race.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"
#include "lower/ll_alone.hpp"
#include "lower/passes.hpp"

namespace tilewire::lowering {
namespace {

/// By signal_id: whether all waits for a signal are for data that the waiting tasks poll.
std::vector<bool> elided_signals(const Plan& plan) {
  std::vector<bool> by_data(static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks, false);
  std::vector<bool> by_signal = by_data;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      const bool looks = polls(plan, lane, task);
      for (const Wait& wait : task.waits)
        (looks && wait.purpose == Purpose::data ? by_data : by_signal)[signal_id(plan, wait.signal)] = true;
    }
  }
  for (size_t id = 0; id < by_data.size(); ++id) by_data[id] = by_data[id] && !by_signal[id];
  return by_data;
}

}  // namespace

std::string elide_signals(Plan& plan, const Target&) {
  if (!uses_ll(plan)) return "no LL data";
  const std::vector<bool> elided = elided_signals(plan);
  Plan without = plan;
  const auto is_elided = [&](const auto& use) { return elided[signal_id(plan, use.signal)]; };
  size_t waits = 0;
  size_t posts = 0;
  for (Lane& lane : without.lanes) {
    for (Task& task : lane.tasks) {
      waits += std::erase_if(task.waits, is_elided);
      posts += std::erase_if(task.posts, is_elided);
    }
  }
  if (waits == 0) return "no signal that polling of LL data could replace";
  // Prove the plan without these signals: they may also order other memory, about which LL data reveal nothing.
  if (!shares_ll_data_alone(plan)) {
    if (const auto race = checking::first_race(without)) return "signals of LL data also order other data: " + *race;
  }
  plan = std::move(without);
  return fmt::format("polling of LL data replaces {} waits and {} posts", waits, posts);
}

}  // namespace tilewire::lowering
