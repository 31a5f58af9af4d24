// One rank's tables in the making: where its regions lie, and how waits and posts become records.
// Used by lane_tables.cpp and tile_records.cpp.
#pragma once

#include <algorithm>
#include <vector>

#include "backends/cuda/lane_tables.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {

[[nodiscard]] inline bool is_tile(const Task& task) {
  return task.kind == TaskKind::compute || task.kind == TaskKind::gemm_call;
}

[[nodiscard]] inline StoreMode mode_of(const Write& write) {
  return write.mode == WriteMode::store ? StoreMode::store : StoreMode::accumulate;
}

/// How many waits or posts a record has.
[[nodiscard]] inline uint16_t count_in_record(size_t count) {
  require(count <= UINT16_MAX, "a task has {} waits or posts, at most {} on GPUs: larger chunks have fewer", count,
          UINT16_MAX);
  return static_cast<uint16_t>(count);
}

/// A plan as one rank sees it, and its tables so far.
struct RankView {
  const Plan& plan;
  int rank;
  const Addresses& addresses;
  const std::vector<int64_t>& totals;
  RankTables& out;

  [[nodiscard]] const Base& base(const Region& region) const {
    return addresses.bases[region.rank * plan.buffers.size() + region.buffer];
  }
  [[nodiscard]] DType dtype_of(const Region& region) const { return plan.buffers[region.buffer].dtype; }
  [[nodiscard]] std::byte* data_of(const Region& region) const {
    const Base& at = base(region);
    return at.data + (region.row * at.ld + region.col) * bytes_of(dtype_of(region));
  }

  uint32_t name_task(int lane, int64_t task) {
    out.names.push_back({lane, task});
    return static_cast<uint32_t>(out.names.size() - 1);
  }

  void add_waits(const std::vector<Wait>& from, std::vector<WaitRecord>& waits) const {
    const int signals = num_signals(plan);
    for (size_t i = 0; i < from.size(); ++i) {
      const Wait& wait = from[i];
      const int64_t total = totals[static_cast<size_t>(wait.signal.rank) * signals + wait.signal.index];
      waits.push_back({addresses.signal(wait.signal), static_cast<uint64_t>(wait.at_least),
                       static_cast<uint64_t>(total), static_cast<uint32_t>(i)});
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
