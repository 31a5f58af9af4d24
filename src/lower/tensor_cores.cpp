// Decides which tiles tensor cores make.
// Used by passes and by the cuda backend.
#include "lower/tensor_cores.hpp"

#include <algorithm>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire {

namespace {

/// The reason why tensor cores cannot take a tile's addends: their type, or their number.
std::optional<std::string> slow_addends(const Plan& plan, const Task& task, DType operands) {
  if (task.addends.empty()) return std::nullopt;
  const int most = most_partials(tile_shape_of(task.gemm));
  if (std::ssize(task.addends) > most)
    return fmt::format("a tile of {} x {} with {} addends, at most {}", task.gemm.tile_m, task.gemm.tile_n,
                       task.addends.size(), most);
  const DType dtype = plan.buffers[task.addends[0].buffer].dtype;
  return dtype == operands ? std::nullopt : std::optional("addends of " + to_string(dtype));
}

/// The reason why tensor cores cannot take a tile's rows of A: at most two places are possible.
std::optional<std::string> slow_pieces(const Task& task, TileShape shape) {
  constexpr size_t kWhole = 2;
  if (task.reads.size() == kWhole) return std::nullopt;
  if (task.reads.size() > kWhole + 1) return fmt::format("rows of A from {} places", task.reads.size() - 1);
  if (!takes_splits(shape) || in_cluster(task) || task.gemm.cluster_split_k > 1)
    return fmt::format("rows of A from two places, of a tile of {} x {}{}", shape.m, shape.n,
                       takes_splits(shape) ? " in a cluster" : "");
  if (task.reads[0].rows % kRowsOfSplit != 0)
    return fmt::format("{} rows of A from one place and {} from another, want a multiple of {}", task.reads[0].rows,
                       task.reads[kWhole].rows, kRowsOfSplit);
  return std::nullopt;
}

}  // namespace

bool has_aligned_rows(const Plan& plan, const Region& region) {
  const Buffer& buffer = plan.buffers[region.buffer];
  return shape_on(buffer, region.rank).cols * bytes_of(buffer.dtype) % 16 == 0;
}

bool fits_tensor_store(const Plan& plan, const Task& tile, const Write& write) {
  const Region& to = write.to;
  const Buffer& buffer = plan.buffers[to.buffer];
  const Shape shape = shape_on(buffer, to.rank);
  const int64_t size = bytes_of(buffer.dtype);
  const TileShape tile_shape = tile_shape_of(tile.gemm);
  const bool whole_boxes = to.rows % (has_runtime_rows(tile_shape) ? kRestRows : kStoreRows) == 0;
  const bool whole_rows =
      write.first_row == 0 && to.rows == result_shape(tile).rows && (whole_boxes || to.row + to.rows == shape.rows);
  const bool overlap = chunks_overlap(tile_shape);
  const bool ends_chunk = overlap ? to.cols == tile_shape.n : to.cols * size % kStoreBytes == 0;
  const bool whole_cols = ends_chunk || to.col + to.cols == shape.cols;
  const bool twice = overlap && write.mode == WriteMode::accumulate;
  const bool callers = buffer.scope == Scope::input || buffer.scope == Scope::output;
  // NOTE: a tensor store whose first column is not aligned to 16 bytes never ends.
  const bool aligned = (callers || has_aligned_rows(plan, to)) && to.col * size % 16 == 0;
  return whole_rows && whole_cols && !twice && aligned && !buffer.ll;
}

std::optional<std::string> slow_exit(const Plan& plan, const Task& task, DType operands) {
  if (joins_columns(task.epilogue)) return "the epilogue swiglu_pairs";
  if (task.writes.size() > kMaxWrites) return fmt::format("a tile with {} destinations", task.writes.size());
  for (const EpilogueStep& step : task.epilogue) {
    if (!step.operand) continue;
    const DType dtype = plan.buffers[step.operand->buffer].dtype;
    if (dtype != operands && dtype != DType::fp32)
      return fmt::format("a {} of {}", to_string(step.kind), to_string(dtype));
  }
  for (const Write& write : task.writes) {
    const DType dtype = plan.buffers[write.to.buffer].dtype;
    const bool same = dtype == plan.buffers[task.writes[0].to.buffer].dtype;
    if (!same || (dtype != operands && dtype != DType::fp32)) return "output of " + to_string(dtype);
  }
  return std::nullopt;
}

bool are_pair(const Plan& plan, const Task& x, const Task& y) {
  if (!in_cluster(x) || !in_cluster(y) || depth_of(x) != depth_of(y) || x.addends.size() != y.addends.size())
    return false;
  // NOTE: the addends of both tiles must be loaded at the same time (comes_late): tiles of a ring without epilogue and
  // tiles of a sum with one do not fit together.
  const auto wide = [&](const Task& tile) {
    return std::ranges::any_of(tile.writes, [&](const Write& write) {
      return plan.buffers[write.to.buffer].dtype == DType::fp32 && write.to.rows > 0 && write.to.cols > 0;
    });
  };
  if (!x.addends.empty() && (x.epilogue.empty() != y.epilogue.empty() || wide(x) != wide(y))) return false;
  Region mine = x.reads[x.gemm.cluster_m == 2 ? 1 : 0];
  const Region& other = y.reads[x.gemm.cluster_m == 2 ? 1 : 0];
  // The number of rows or columns may differ; their start and the range of K must be equal.
  const bool along_cols = x.gemm.cluster_m == 2 && x.gemm.b_layout == BLayout::kn;
  (along_cols ? mine.cols : mine.rows) = along_cols ? other.cols : other.rows;
  return mine == other;
}

std::optional<std::string> slow_tile(const Plan& plan, const Task& task) {
  const DType dtype = plan.buffers[task.reads[0].buffer].dtype;
  const TileShape shape = tile_shape_of(task.gemm);
  if (dtype != DType::bf16 && dtype != DType::fp16) return "type " + to_string(dtype);
  if (!is_compiled(shape)) return fmt::format("tiles of {} x {} are not compiled", shape.m, shape.n);
  const Shape result = result_shape(task);
  if (result.rows > shape.m || result.cols > shape.n)
    return fmt::format("a result of {} x {} in a tile of {} x {}", result.rows, result.cols, shape.m, shape.n);
  if (auto reason = slow_pieces(task, shape)) return reason;
  if (auto reason = slow_exit(plan, task, dtype)) return reason;
  return slow_addends(plan, task, dtype);
}

std::optional<std::string> slow_tiles(const Plan& plan) {
  const Task* first = first_product(plan);
  if (first == nullptr) return "no tiles";
  if (first->kind == TaskKind::gemm_call) return "one call of the library";
  for (const Lane& lane : plan.lanes) {
    if (lane.kernel > 0) continue;
    for (const Task& task : lane.tasks) {
      if (!is_gemm_tile(task)) continue;
      if (auto reason = slow_tile(plan, task)) return reason;
      if (kernel_of(plan, task) != kernel_of(plan, *first)) return "tiles of several types, layouts or shapes";
    }
  }
  return std::nullopt;
}

double slow_share(const Plan& plan) {
  const bool all = slow_tiles(plan).has_value();
  double slow = 0;
  double whole = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (!is_gemm_tile(task)) continue;
      const auto work = multiply_adds(task);
      whole += work;
      if (all || lane.kernel > 0) slow += work;
    }
  }
  return whole > 0 ? slow / whole : 0;
}

const Task* first_product(const Plan& plan) {
  const Task* call = nullptr;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (is_gemm_tile(task) && lane.kernel == 0) return &task;
      if (task.kind == TaskKind::gemm_call && call == nullptr) call = &task;
    }
  }
  return call;
}

}  // namespace tilewire
