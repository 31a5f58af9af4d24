// Finds the tiles that must be finished before a signal is complete, over all ranks.
// Used by unpair_tiles.cpp and fuse_sums.cpp.
#include "lower/tile_needs.hpp"

#include <algorithm>

#include "core/gemm_tasks.hpp"

namespace tilewire {
namespace {

constexpr int64_t kUnknown = -2;
/// In progress, or part of a cycle: above every position.
constexpr int64_t kNever = INT64_MAX;

}  // namespace

TileNeeds::TileNeeds(const Plan& whole)
    : plan_(whole),
      posters_(static_cast<size_t>(num_signals(whole)) * whole.team.num_ranks),
      by_signal_(posters_.size(), kUnknown) {
  for (int lane = 0; lane < std::ssize(whole.lanes); ++lane) {
    const auto& tasks = whole.lanes[lane].tasks;
    by_task_.emplace_back(tasks.size(), kNever);
    prefixes_.emplace_back();
    for (int64_t task = 0; task < std::ssize(tasks); ++task) {
      for (const Post& post : tasks[task].posts) posters_[signal_id(whole, post.signal)].push_back({lane, task});
    }
  }
}

int64_t TileNeeds::of(Signal signal, std::pair<int, int64_t> except) {
  int64_t& memo = by_signal_[signal_id(plan_, signal)];
  const bool all = except.first < 0;
  if (all && memo != kUnknown) return memo;
  if (all) memo = kNever;
  int64_t most = -1;
  for (const Poster& poster : posters_[signal_id(plan_, signal)]) {
    if (poster.lane == except.first && poster.task == except.second) continue;
    most = std::max(most, of_task(poster));
  }
  if (all) by_signal_[signal_id(plan_, signal)] = most;
  return most;
}

int64_t TileNeeds::of_waits(const Task& task) {
  int64_t most = -1;
  for (const Wait& wait : task.waits) most = std::max(most, of(wait.signal));
  return most;
}

int64_t TileNeeds::of_task(const Poster& poster) {
  const Lane& lane = plan_.lanes[poster.lane];
  Prefix& prefix = prefixes_[poster.lane];
  while (prefix.known <= poster.task && !prefix.busy) {
    const int64_t index = prefix.known;
    const Task& task = lane.tasks[index];
    prefix.busy = true;
    const int64_t waits = of_waits(task);
    prefix.busy = false;
    const bool tile = is_gemm_tile(task);
    int64_t& most = tile ? prefix.of_tiles : prefix.of_others;
    most = std::max(most, waits);
    by_task_[poster.lane][index] = tile ? std::max(most, index) : most;
    prefix.known = index + 1;
  }
  // A task that is still in progress depends on itself.
  return poster.task < prefix.known ? by_task_[poster.lane][poster.task] : kNever;
}

}  // namespace tilewire
