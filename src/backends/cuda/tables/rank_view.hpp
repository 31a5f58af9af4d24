// One rank's tables in the making: addresses of its regions, and the records of its waits and posts.
// Used by lane_tables.cpp and tile_records.cpp.
#pragma once

#include <algorithm>
#include <vector>

#include "backends/cuda/tables/lane_tables.hpp"
#include "core/gemm_tasks.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {

/// The number of waits or posts in a record. Throws Error(invalid_input) if there are too many.
[[nodiscard]] inline uint16_t count_in_record(size_t count) {
  require(count <= UINT16_MAX, "a task has {} waits or posts, at most {} on GPUs: larger chunks have fewer", count,
          UINT16_MAX);
  return static_cast<uint16_t>(count);
}

/// The number of sources, destinations or epilogue steps (`what`) in a record. Throws Error(invalid_input) likewise.
[[nodiscard]] inline uint8_t small_count(const char* what, size_t count) {
  require(count <= UINT8_MAX, "a task has {} {}, at most {} on GPUs", count, what, UINT8_MAX);
  return static_cast<uint8_t>(count);
}

/// A plan as one rank sees it, and the tables made so far.
struct RankView {
  const Plan& plan;
  int rank;
  const Addresses& addresses;
  const std::vector<int64_t>& totals;  ///< signal_totals of the whole plan
  RankTables& out;

  [[nodiscard]] const Base& base(const Region& region) const {
    return addresses.bases[region.rank * plan.buffers.size() + region.buffer];
  }
  [[nodiscard]] DType dtype_of(const Region& region) const { return plan.buffers[region.buffer].dtype; }
  /// The type in records of ops. Copies of int32 move its bits as those of fp32: elements pass through fp32.
  [[nodiscard]] DType dtype_in_op(const Task& task, const Region& region) const {
    const DType dtype = dtype_of(region);
    return task.kind == TaskKind::copy && dtype == DType::int32 ? DType::fp32 : dtype;
  }
  [[nodiscard]] std::byte* data_of(const Region& region) const {
    const Base& at = base(region);
    // Rows of groups are found by their extents.
    const int64_t row = is_grouped(plan.buffers[region.buffer]) ? 0 : region.row;
    return at.data + (row * at.ld + region.col) * bytes_of(dtype_of(region));
  }

  /// Whether a task polls LL data. Such a task reads nothing else (refuses_ll).
  [[nodiscard]] bool polls_data(const Task& task) const { return !task.reads.empty() && is_ll(plan, task.reads[0]); }
  [[nodiscard]] StoreMode mode_of(const Write& write) const {
    if (write.mode == WriteMode::accumulate) return StoreMode::accumulate;
    return is_ll(plan, write.to) ? StoreMode::publish : StoreMode::store;
  }

  uint32_t name_task(int lane, int64_t task) {
    out.names.push_back({.lane = lane, .task = task});
    return static_cast<uint32_t>(out.names.size() - 1);
  }
  /// The name of the sum of a task's addends; call it after name_task of the task.
  uint32_t name_sum(int lane, int64_t task) {
    out.names.push_back({.lane = lane, .task = task, .sum = true});
    return static_cast<uint32_t>(out.names.size() - 1);
  }

  /// Which of a task's waits: all, with step 0; those of a tile's product, each with the step of K that needs it; or
  /// those for a tile's addends.
  enum class Waits { all, of_product, of_addends };
  void add_waits(const Task& task, Waits which, std::vector<WaitRecord>& waits) const {
    for (size_t i = 0; i < task.waits.size(); ++i) {
      const Wait& wait = task.waits[i];
      const size_t id = signal_id(plan, wait.signal);
      const bool adds = is_for_addends(task, wait);
      if (which != Waits::all && adds != (which == Waits::of_addends)) continue;
      const int64_t step = which == Waits::of_product ? std::min(wait.from_col, depth_of(task) - 1) / kTileK : 0;
      waits.push_back({addresses.signal(wait.signal), static_cast<uint64_t>(wait.at_least),
                       static_cast<uint64_t>(totals[id]), static_cast<uint32_t>(i), static_cast<uint32_t>(step)});
    }
  }

  void add_epilogue(const Task& task, std::vector<EpilogueRecord>& steps) const {
    for (const EpilogueStep& step : task.epilogue) {
      EpilogueRecord record{.kind = step.kind, .value = static_cast<float>(step.value)};
      if (step.operand) {
        record.operand = data_of(*step.operand);
        record.ld = base(*step.operand).ld;
        record.dtype = dtype_of(*step.operand);
      }
      steps.push_back(record);
    }
  }

  void add_posts(const Task& task, std::vector<PostRecord>& posts) const {
    const bool far = std::ranges::any_of(task.writes, [&](const Write& write) { return write.to.rank != rank; });
    for (const Post& post : task.posts) {
      posts.push_back(
          {addresses.signal(post.signal), static_cast<uint64_t>(post.add), far || post.signal.rank != rank});
    }
  }
};

}  // namespace tilewire::cuda
