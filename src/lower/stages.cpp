// Drops waits that the order of stages replaces.
// Called by passes that make stages.
#include "lower/stages.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace tilewire::lowering {

size_t drop_waits_between_stages(Plan& plan) {
  constexpr int kElsewhere = std::numeric_limits<int>::max();
  const size_t signals = static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks;
  std::vector<int> last_stage(signals, 0);
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      for (const Post& post : task.posts) {
        int& last = last_stage[signal_id(plan, post.signal)];
        last = std::max(last, post.signal.rank == lane.rank ? lane.stage : kElsewhere);
      }
    }
  }
  size_t dropped = 0;
  std::vector<bool> replaced(signals, false);
  std::vector<bool> awaited(signals, false);
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      dropped += std::erase_if(task.waits, [&](const Wait& wait) {
        const int64_t id = signal_id(plan, wait.signal);
        const bool earlier = wait.signal.rank == lane.rank && last_stage[id] < lane.stage;
        (earlier ? replaced : awaited)[id] = true;
        return earlier;
      });
    }
  }
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      std::erase_if(task.posts, [&](const Post& post) {
        const int64_t id = signal_id(plan, post.signal);
        return replaced[id] && !awaited[id];
      });
    }
  }
  return dropped;
}

}  // namespace tilewire::lowering
