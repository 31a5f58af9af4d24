// Which tiles the GEMM kernel takes, and which of its bodies.
// Called when a program is loaded and its tables are made.
#include <algorithm>

#include "backends/cuda/tables/lane_tables.hpp"
#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {

std::optional<std::string> refuses_cluster_split_k(const Plan& plan) {
  const int parts = most_split_k(plan);
  if (parts == 1 || slow_tiles(plan)) return std::nullopt;
  const TileShape shape = kind_of(plan).shape;
  if (!may_split_k_in_cluster(shape))
    return fmt::format("tiles of {} x {} are too large, want at most 128 x 128, or up to {} x 128", shape.m, shape.n,
                       kMostClusterSplitRows);
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (!is_gemm_tile(task) || lane.kernel > 0) continue;
      const int64_t least = int64_t{kTileK} * least_part_steps(shape) * parts;
      if (const int64_t depth = depth_of(task); depth < least)
        return fmt::format("tiles over {} columns of A, want at least {}", depth, least);
    }
  }
  return std::nullopt;
}

int most_split_k(const Plan& plan) {
  int most = 1;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.kernel == 0 && computes(task)) most = std::max(most, task.gemm.cluster_split_k);
    }
  }
  return most;
}

GemmParams gemm_params_of(const Plan& plan) {
  const Task* product = first_product(plan);
  return product == nullptr ? GemmParams{} : product->gemm;
}

GemmBodyKind kind_of(const Plan& plan) {
  const Task* product = first_product(plan);
  if (product == nullptr) return {};
  const GemmParams& gemm = product->gemm;
  const auto has_steps = [](const Task& task) {
    const bool one_bias = task.epilogue.size() == 1 && task.epilogue[0].kind == EpilogueKind::bias;
    return is_gemm_tile(task) && !task.epilogue.empty() && !one_bias;
  };
  const auto lane_has_steps = [&](const Lane& lane) {
    return lane.kernel == 0 && std::ranges::any_of(lane.tasks, has_steps);
  };
  const TileShape shape = tile_shape_of(gemm);
  return {.dtype = plan.buffers[product->reads[0].buffer].dtype,
          .b_is_kn = gemm.b_layout == BLayout::kn,
          .shape = shape,
          .steps = fills_registers(shape) && std::ranges::any_of(plan.lanes, lane_has_steps)};
}

}  // namespace tilewire::cuda
