// Which tiles tensor cores make.
// Used by passes and by the cuda backend.
#include "lower/tensor_cores.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire {

namespace {

/// What is added to a tile comes as its operands do, and at once.
std::optional<std::string> slow_addends(const Plan& plan, const Task& task, DType operands) {
  if (task.addends.empty()) return std::nullopt;
  const int most = most_partials(tile_shape_of(task.gemm));
  if (std::ssize(task.addends) > most)
    return fmt::format("a tile of {} x {} with {} addends, at most {}", task.gemm.tile_m, task.gemm.tile_n,
                       task.addends.size(), most);
  const DType dtype = plan.buffers[task.addends[0].buffer].dtype;
  return dtype == operands ? std::nullopt : std::optional("addends of " + to_string(dtype));
}

}  // namespace

bool has_aligned_rows(const Plan& plan, const Region& region) {
  const Buffer& buffer = plan.buffers[region.buffer];
  return shape_on(buffer, region.rank).cols * bytes_of(buffer.dtype) % 16 == 0;
}

std::optional<std::string> slow_exit(const Plan& plan, const Task& task, DType operands) {
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

std::optional<std::string> slow_tiles(const Plan& plan) {
  const Task* product = first_product(plan);
  if (product == nullptr) return "no tiles";
  const DType dtype = plan.buffers[product->reads[0].buffer].dtype;
  const TileShape shape = tile_shape_of(product->gemm);
  if (dtype != DType::bf16 && dtype != DType::fp16) return "type " + to_string(dtype);
  if (!is_compiled(shape)) {
    return fmt::format("tiles of {} x {} are not compiled", shape.m, shape.n);
  }
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.kind != TaskKind::compute && task.kind != TaskKind::gemm_call) continue;
      if (task.kind == TaskKind::gemm_call) return "one call of the library";
      if (auto reason = slow_exit(plan, task, dtype)) return reason;
      if (auto reason = slow_addends(plan, task, dtype)) return reason;
    }
  }
  return std::nullopt;
}

const Task* first_product(const Plan& plan) {
  for (const TaskKind kind : {TaskKind::compute, TaskKind::gemm_call}) {
    for (const Lane& lane : plan.lanes) {
      const auto found = std::ranges::find(lane.tasks, kind, &Task::kind);
      if (found != lane.tasks.end()) return &*found;
    }
  }
  return nullptr;
}

}  // namespace tilewire
