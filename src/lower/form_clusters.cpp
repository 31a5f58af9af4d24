// Forms clusters of CTAs: pairs of tiles that share loads, and cluster split-K.
// Listed in lower.cpp.
#include <algorithm>
#include <optional>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"
#include "lower/tensor_cores.hpp"

namespace tilewire::lowering {
namespace {

void load_alone(Task& tile) { tile.gemm.cluster_m = tile.gemm.cluster_n = 1; }

/// The reason why a rank's tiles cannot be in pairs, or nothing. NOTE: a pair needs two SMs besides one for each lane.
std::optional<std::string> refuses_pairs(const Plan& plan, int rank, const Target& target) {
  if (!target.whole_gpu) return "other kernels use the GPU";
  int64_t tiles = 0;
  int workers = target.sms;
  int lanes = 0;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != rank) continue;
    ++lanes;
    if (!by_tensor_cores(lane)) continue;
    for (const Task& task : lane.tasks) {
      if (!is_gemm_tile(task)) continue;
      ++tiles;
      const int ctas = task.gemm.cluster_m * task.gemm.cluster_n;
      if (ctas > 2) return fmt::format("clusters of {} x {}", task.gemm.cluster_m, task.gemm.cluster_n);
      if (ctas == 2 && task.gemm.tile_m == 64) return "tiles of 64 rows";
    }
    if (lane.workers > 0) workers = lane.workers;
  }
  if (tiles < 2) return "one tile";
  if (workers < 2) return "one worker";
  if (target.sms < lanes + 2) return fmt::format("{} SMs for {} lanes", target.sms, lanes);
  return std::nullopt;
}

/// Make pairs of neighbours in the list with a common operand. All other tiles get clusters of 1. Returns the number of
/// tiles in pairs.
int64_t pair_up(const Plan& plan, Lane& lane) {
  std::vector<Task*> tiles;
  for (Task& task : lane.tasks) {
    if (is_gemm_tile(task)) tiles.push_back(&task);
  }
  int64_t paired = 0;
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (!in_cluster(*tiles[i])) continue;
    if (i + 1 < tiles.size() && are_pair(plan, *tiles[i], *tiles[i + 1])) {
      ++i;
      paired += 2;
    } else {
      load_alone(*tiles[i]);
    }
  }
  return paired;
}

/// Whether there is room for clusters of `ctas` CTAs with cluster split-K.
bool may_share_k(int ctas, const Target& target) { return target.whole_gpu && target.sms >= 2 * ctas; }

}  // namespace

std::string form_clusters(Plan& plan, const Target& target) {
  int64_t pairs = 0;
  int64_t share_k = 0;
  std::string why;
  std::vector<std::optional<std::string>> refused;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) refused.push_back(refuses_pairs(plan, rank, target));
  std::vector<bool> norms(plan.team.num_ranks, false);
  for (const Lane& lane : plan.lanes) {
    if (std::ranges::any_of(lane.tasks, is_norm)) norms[lane.rank] = true;
  }
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (!is_gemm_tile(task)) continue;
      if (task.gemm.cluster_split_k > 1 && !may_share_k(task.gemm.cluster_split_k, target)) {
        why = fmt::format("no room for clusters of {} on {} SMs", task.gemm.cluster_split_k, target.sms);
        task.gemm.cluster_split_k = 1;
      }
      // Norms get kernels of their own, beside which larger clusters may not be resident.
      if (task.gemm.cluster_split_k > 2 && norms[lane.rank]) {
        why = "two CTAs share K beside kernels of norms, not more";
        task.gemm.cluster_split_k = 2;
      }
      share_k += task.gemm.cluster_split_k > 1 ? 1 : 0;
      const bool in_kernel = by_tensor_cores(lane);
      if (!in_cluster(task) || (in_kernel && !refused[lane.rank])) continue;
      why = in_kernel ? *refused[lane.rank] : "tiles without tensor cores";
      load_alone(task);
    }
    if (by_tensor_cores(lane)) pairs += pair_up(plan, lane);
  }
  if (pairs > 0) return fmt::format("{} tiles in pairs", pairs);
  if (share_k > 0) return fmt::format("CTAs share the K of {} tiles", share_k);
  return why.empty() ? "no tiles in clusters" : "tiles load without clusters: " + why;
}

}  // namespace tilewire::lowering
