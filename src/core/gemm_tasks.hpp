// Predicates of tasks that make products.
// Used by the validation of plans, passes, the checker, the simulator and the cuda backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/bodies.hpp"
#include "tilewire/plan.hpp"

namespace tilewire {

/// Whether a task makes a tile of a GEMM.
[[nodiscard]] inline bool is_gemm_tile(const Task& task) {
  return task.kind == TaskKind::compute && facts_of(task.body).multiplies;
}

/// Whether a task has a compute body.
[[nodiscard]] inline bool computes(const Task& task) {
  return task.kind == TaskKind::compute || task.kind == TaskKind::gemm_call;
}

/// Whether a task multiplies: a tile, or a whole GEMM by the library.
[[nodiscard]] inline bool is_product(const Task& task) { return computes(task) && facts_of(task.body).multiplies; }

/// Whether a task of kind `compute` has this body.
[[nodiscard]] inline bool computes_with(const Task& task, Body body) {
  return task.kind == TaskKind::compute && task.body == body;
}

/// Whether a task normalises rows.
[[nodiscard]] inline bool is_norm(const Task& task) { return computes_with(task, Body::norm); }

/// Whether a task multiplies groups of rows.
[[nodiscard]] inline bool is_grouped_gemm(const Task& task) { return computes_with(task, Body::grouped_gemm); }

/// Whether a task's results are several matrices, one for each write.
[[nodiscard]] inline bool has_several_results(const Task& task) {
  return computes(task) && facts_of(task.body).several_results;
}

/// Whether a write may take some columns of the task's result.
[[nodiscard]] inline bool takes_columns(const Task& task) {
  return task.kind == TaskKind::gemm_call || is_norm(task) || is_grouped_gemm(task);
}

/// Whether the plan has a GEMM by the vendor's library.
[[nodiscard]] inline bool has_library_call(const Plan& plan) {
  return std::ranges::any_of(plan.lanes, [](const Lane& lane) {
    return std::ranges::find(lane.tasks, TaskKind::gemm_call, &Task::kind) != lane.tasks.end();
  });
}

/// Multiply-adds of a product.
[[nodiscard]] inline double multiply_adds(const Task& task) { return facts_of(task.body).ops(task) / 2; }

/// Whether a tile is in a cluster whose CTAs share loads.
[[nodiscard]] inline bool in_cluster(const Task& task) {
  return task.kind == TaskKind::compute && task.gemm.cluster_m * task.gemm.cluster_n > 1;
}

/// Whether some rows of A are written during the call (not all of them are inputs).
[[nodiscard]] inline bool takes_arrivals(const Plan& plan, const Task& tile) {
  for (size_t i = 0; i < tile.reads.size(); ++i) {
    if (i != 1 && plan.buffers[tile.reads[i].buffer].scope != Scope::input) return true;
  }
  return false;
}

/// Whether a product may read columns of A before all of its waits are over.
[[nodiscard]] inline bool loads_early(const Task& task) {
  return std::ranges::any_of(task.waits, [](const Wait& wait) { return wait.from_col > 0; });
}

/// All regions that a task reads, except those of its epilogue.
[[nodiscard]] inline std::vector<Region> all_reads(const Task& task) {
  std::vector<Region> reads = task.reads;
  reads.insert(reads.end(), task.addends.begin(), task.addends.end());
  return reads;
}

/// Whether a task needs a wait only for its addends: no column of A needs it.
[[nodiscard]] inline bool is_for_addends(const Task& task, const Wait& wait) {
  return !task.addends.empty() && wait.from_col > 0 && wait.from_col == depth_of(task);
}

}  // namespace tilewire
