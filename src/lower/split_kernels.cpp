// Gives data lanes beside library calls, or beside a lane with its own kernel, kernels of their own.
// Listed in lower.cpp.
#include <algorithm>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"

namespace tilewire::lowering {
namespace {

/// Whether a rank has norms beside tiles on tensor cores, whose kernel has no code for norms.
bool has_norms_beside_tiles(const Plan& plan, int rank) {
  const bool norms = std::ranges::any_of(plan.lanes, [&](const Lane& lane) {
    return lane.rank == rank && !lane.joined && std::ranges::any_of(lane.tasks, is_norm);
  });
  return norms && uses_tensor_cores(plan, rank);
}

/// Whether a rank's data lanes should have kernels of their own. NOTE: in the call's first kernel they would hold their
/// SMs from the start, while the library calls need them.
bool wants_kernels(const Plan& plan, int rank) {
  if (has_stages(plan, rank)) return false;
  return has_library_lane(plan, rank) || has_several_kernels(plan, rank) || has_norms_beside_tiles(plan, rank);
}

}  // namespace

std::string split_kernels(Plan& plan, const Target& target) {
  if (!target.streams) return "ranks share a GPU, where a call is one kernel";
  int split = 0;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    if (!wants_kernels(plan, rank)) continue;
    int kernels = 0;
    for (const Lane& lane : plan.lanes) kernels = std::max(kernels, lane.rank == rank ? lane.kernel : 0);
    const bool tensor_cores = uses_tensor_cores(plan, rank);
    for (Lane& lane : plan.lanes) {
      const bool by_workers = !by_stream(lane) && !(tensor_cores && by_tensor_cores(lane)) && moves_data(lane);
      if (lane.rank != rank || lane.kernel > 0 || !by_workers) continue;
      lane.kernel = ++kernels;
      ++split;
    }
  }
  if (split == 0) return "no lanes move data beside the library's calls or other kernels";
  return fmt::format("{} lanes get kernels of their own, which begin when what they wait for first is over", split);
}

}  // namespace tilewire::lowering
