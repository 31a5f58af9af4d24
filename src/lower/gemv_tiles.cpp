// Finds the tiles that the GEMV kernel makes.
// Called by join_sums.cpp and by the cuda backend.
#include "lower/gemv_tiles.hpp"

#include <algorithm>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/kernel_limits.hpp"
#include "lower/lane_roles.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

/// Whether a task stores its whole result on its own rank, in the type of its operands, and nothing waits for it.
bool stores_alone(const Plan& plan, int rank, const Task& tile) {
  const Shape shape = result_shape(tile);
  const DType dtype = plan.buffers[tile.reads[0].buffer].dtype;
  const auto is_whole = [&](const Write& write) {
    const Buffer& buffer = plan.buffers[write.to.buffer];
    return write.to.rank == rank && write.mode == WriteMode::store && buffer.dtype == dtype && !buffer.ll &&
           write.first_row == 0 && write.to.rows == shape.rows && write.to.cols == shape.cols;
  };
  return tile.waits.empty() && tile.posts.empty() && tile.addends.empty() && !tile.writes.empty() &&
         std::ranges::all_of(tile.writes, is_whole);
}

}  // namespace

std::optional<std::string> unfit_product(const Plan& plan, const Task& tile) {
  const GemmParams& gemm = tile.gemm;
  const Shape shape = result_shape(tile);
  const int64_t rows = std::max<int64_t>(gemm.tile_m, shape.rows);
  const int64_t cols = std::max<int64_t>(gemm.tile_n, shape.cols) * (joins_columns(tile.epilogue) ? 2 : 1);
  const DType dtype = plan.buffers[tile.reads[0].buffer].dtype;
  const int most = most_gemv_cols(dtype);
  if (rows > kMostGemvRows || cols > most)
    return fmt::format("tiles of {} x {}, want at most {} x {}", rows, cols, kMostGemvRows, most);
  if (!is_number(dtype) || plan.buffers[tile.reads[1].buffer].dtype != dtype) return "operands of " + to_string(dtype);
  if (tile.reads.size() != 2 || in_cluster(tile) || gemm.cluster_split_k > 1) return "tiles of several CTAs or pieces";
  const int64_t depth = depth_of(tile);
  if (shape.rows == 0 || shape.cols % kGemvUnit != 0 || depth == 0 || depth % kGemvUnit != 0)
    return fmt::format("tiles of {} x {} over K = {}, want columns and K in multiples of {}", shape.rows, shape.cols,
                       depth, kGemvUnit);
  return std::nullopt;
}

int lane_of_gemv_alone(const Plan& plan, int rank) {
  int found = -1;
  for (int i = 0; i < std::ssize(plan.lanes); ++i) {
    const Lane& lane = plan.lanes[i];
    if (lane.rank != rank || lane.tasks.empty()) continue;
    const auto fits = [&](const Task& task) {
      return is_gemm_tile(task) && !unfit_product(plan, task) && stores_alone(plan, rank, task);
    };
    const bool alone = found < 0 && lane.stage == 0 && lane.kernel == 0 && !is_serial(lane.engine);
    if (!alone || !std::ranges::all_of(lane.tasks, fits)) return -1;
    found = i;
  }
  return found;
}

}  // namespace tilewire
