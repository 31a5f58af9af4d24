// Removes clusters that share loads on ranks where a pair of tiles could wait for ever.
// Listed in lower.cpp.
#include <algorithm>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/passes.hpp"
#include "lower/tile_needs.hpp"

namespace tilewire::lowering {
namespace {

/// The text of the first tile of a rank that might never end in a pair, or nothing.
std::string held_up(const Plan& plan, int rank, TileNeeds& needs) {
  constexpr int64_t kApart = 2;  // in positions: either tile may be the first or the second of its pair
  for (int index = 0; index < std::ssize(plan.lanes); ++index) {
    const Lane& lane = plan.lanes[index];
    if (lane.rank != rank) continue;
    for (int64_t tile = 0; tile < std::ssize(lane.tasks); ++tile) {
      if (!is_gemm_tile(lane.tasks[tile])) continue;
      for (const Wait& wait : lane.tasks[tile].waits) {
        const int64_t needed = needs.of(wait.signal);
        if (needed >= 0 && needed >= tile - kApart)
          return fmt::format("{} waits for {}, which needs tiles at place {}", task_name(plan, index, tile),
                             signal_name(plan, wait.signal), needed);
      }
    }
  }
  return {};
}

}  // namespace

std::string unpair_tiles(Plan& plan, const Target&) {
  TileNeeds needs(plan);
  std::vector<std::string> reasons;
  bool any = false;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    const bool clusters = std::ranges::any_of(
        plan.lanes, [&](const Lane& lane) { return lane.rank == rank && std::ranges::any_of(lane.tasks, in_cluster); });
    any = any || clusters;
    reasons.push_back(clusters ? held_up(plan, rank, needs) : "");
  }
  for (Lane& lane : plan.lanes) {
    if (reasons[lane.rank].empty()) continue;
    for (Task& task : lane.tasks) {
      if (in_cluster(task)) task.gemm.cluster_m = task.gemm.cluster_n = 1;
    }
  }
  if (!any) return "no tiles in clusters";
  const auto first = std::ranges::find_if(reasons, [](const std::string& reason) { return !reason.empty(); });
  if (first == reasons.end()) return "tiles load in clusters on all ranks";
  return fmt::format("tiles of {} of {} ranks load without clusters: {}",
                     std::ranges::count_if(reasons, [](const std::string& reason) { return !reason.empty(); }),
                     reasons.size(), *first);
}

}  // namespace tilewire::lowering
