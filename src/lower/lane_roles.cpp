// Roles of lanes on GPUs: tiles on tensor cores, data lanes, stream lanes, sync-only lanes.
// Used by passes and by the cuda backend.
#include "lower/lane_roles.hpp"

#include <algorithm>

#include "core/gemm_tasks.hpp"
#include "core/ll.hpp"
#include "lower/tensor_cores.hpp"

namespace tilewire {
namespace {

/// Whether tensor copies can load a region, provided that a caller's buffer is aligned.
bool may_load(const Plan& plan, const Region& region) {
  constexpr int64_t kAligned = 16;
  const Buffer& buffer = plan.buffers[region.buffer];
  const bool callers = buffer.scope == Scope::input || buffer.scope == Scope::output;
  return (callers || has_aligned_rows(plan, region)) && region.col * bytes_of(buffer.dtype) % kAligned == 0;
}

}  // namespace

bool others_wait(const Plan& plan, const Lane& lane, const Signal& signal) {
  return std::ranges::any_of(plan.lanes, [&](const Lane& other) {
    return &other != &lane && std::ranges::any_of(other.tasks, [&](const Task& task) {
      return std::ranges::find(task.waits, signal, &Wait::signal) != task.waits.end();
    });
  });
}

bool moves_data(const Lane& lane) {
  return std::ranges::any_of(lane.tasks, [](const Task& task) { return task.kind != TaskKind::sync; });
}

bool has_groups(const Lane& lane) { return std::ranges::any_of(lane.tasks, is_grouped_gemm); }

bool by_tensor_cores(const Lane& lane) {
  return lane.kernel == 0 && !is_serial(lane.engine) && std::ranges::any_of(lane.tasks, is_gemm_tile);
}

bool has_stages(const Plan& plan, int rank) {
  return std::ranges::any_of(plan.lanes, [&](const Lane& lane) { return lane.rank == rank && lane.stage > 0; });
}

bool has_several_kernels(const Plan& plan, int rank) {
  return std::ranges::any_of(plan.lanes, [&](const Lane& lane) { return lane.rank == rank && lane.kernel > 0; });
}

bool has_library_lane(const Plan& plan, int rank) {
  return std::ranges::any_of(plan.lanes,
                             [&](const Lane& lane) { return lane.rank == rank && lane.engine == Engine::library; });
}

bool uses_tensor_cores(const Plan& plan, int rank) {
  if (has_stages(plan, rank) || slow_tiles(plan)) return false;
  const auto loads = [&](const Region& region) { return may_load(plan, region); };
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != rank || lane.kernel > 0) continue;
    for (const Task& task : lane.tasks) {
      if (!is_gemm_tile(task)) continue;
      const auto is_empty = [](const Region& read) { return read.rows == 0 || read.cols == 0; };
      if (std::ranges::any_of(task.reads, is_empty) || !std::ranges::all_of(task.reads, loads) ||
          !std::ranges::all_of(task.addends, loads))
        return false;
    }
  }
  return true;
}

TileCluster cluster_of_tiles(const Plan& plan, int rank) {
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != rank || !by_tensor_cores(lane)) continue;
    for (const Task& task : lane.tasks) {
      if (is_gemm_tile(task) && ctas_of(cluster_of(task.gemm)) > 1) return cluster_of(task.gemm);
    }
  }
  return {};
}

bool is_late(const Plan& plan, const Lane& lane) {
  const Task& first = lane.tasks[0];
  if (polls(plan, lane, first)) return false;  // the data of LL arrive piece by piece
  // A copy may follow the sums: it moves results that were made beside the output.
  const auto follows = [&](const Task& task) { return first.kind == TaskKind::reduce && task.kind == TaskKind::copy; };
  return !first.waits.empty() &&
         std::ranges::all_of(lane.tasks, [&](const Task& task) { return task.waits == first.waits || follows(task); });
}

bool goes_with_call(const Plan& plan, size_t index) {
  const Lane& lane = plan.lanes[index];
  if (lane.engine != Engine::library || lane.stage != 0 || moves_data(lane) || index + 1 == plan.lanes.size())
    return false;
  const Lane& next = plan.lanes[index + 1];
  return next.rank == lane.rank && next.stage == kCallStage;
}

}  // namespace tilewire
