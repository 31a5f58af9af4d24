// Which tiles the tensor-core kernel takes.
// Called when a program is loaded and its tables are made.
#include <algorithm>

#include "backends/cuda/lane_tables.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {

std::optional<std::string> slow_exit(const Plan& plan, const Task& task) {
  if (task.writes.size() > kMaxWrites) return fmt::format("a tile with {} destinations", task.writes.size());
  if (task.epilogue.size() > 1) return "an epilogue of several steps";
  if (!task.epilogue.empty() && task.epilogue[0].kind != EpilogueKind::bias) {
    return "an epilogue of " + to_string(task.epilogue[0].kind);
  }
  for (const Write& write : task.writes) {
    const DType dtype = plan.buffers[write.to.buffer].dtype;
    const bool same = dtype == plan.buffers[task.writes[0].to.buffer].dtype;
    if (!same || (dtype != plan.problem.dtype && dtype != DType::fp32)) return "output of " + to_string(dtype);
  }
  return std::nullopt;
}

std::optional<std::string> slow_tiles(const Plan& plan) {
  const Problem& problem = plan.problem;
  if (problem.dtype != DType::bf16 && problem.dtype != DType::fp16) return "type " + to_string(problem.dtype);
  const TileShape shape = kind_of(plan).shape;
  if (!is_compiled(shape)) {
    return fmt::format("tiles of {} x {} are not compiled", shape.m, shape.n);
  }
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::compute && task.kind != TaskKind::gemm_call) continue;
      if (task.kind == TaskKind::gemm_call) return "one call of the library";
      if (auto reason = slow_exit(plan, task)) return reason;
    }
  }
  return std::nullopt;
}

std::optional<std::string> refuses_cluster_split_k(const Plan& plan) {
  const int parts = plan.config.cluster_split_k;
  if (parts == 1 || slow_tiles(plan)) return std::nullopt;
  const TileShape shape = kind_of(plan).shape;
  if (!may_split_k_in_cluster(shape))
    return fmt::format("tiles of {} x {} are too large, want at most 128 x 128, or up to {} x 128", shape.m, shape.n,
                       kMostClusterSplitRows);
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::compute) continue;
      const int64_t least = int64_t{kTileK} * least_part_steps(shape) * parts;
      if (const int64_t depth = depth_of(task); depth < least)
        return fmt::format("tiles over {} columns of A, want at least {}", depth, least);
    }
  }
  return std::nullopt;
}

GemmBodyKind kind_of(const Plan& plan) {
  return {plan.problem.dtype,
          plan.problem.b_layout == BLayout::kn,
          {static_cast<int>(plan.config.tile_m), static_cast<int>(plan.config.tile_n)}};
}

}  // namespace tilewire::cuda
