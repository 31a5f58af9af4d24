// Remarks for users about how a plan runs on GPUs.
// Called by CudaGroup::remarks.
#include "backends/cuda/tables/remarks.hpp"

#include <algorithm>

#include "backends/cuda/runtime/group.hpp"
#include "backends/cuda/tables/gemv_table.hpp"
#include "backends/cuda/tables/lane_tables.hpp"
#include "core/gemm_tasks.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

/// A remark about an operand whose rows cannot all be aligned to 16 bytes, or nothing.
std::optional<std::string> unaligned_rows(const Plan& plan) {
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank != 0 || lane.kernel > 0 || !is_gemm_tile(task)) continue;
      for (const Region& read : task.reads) {
        if (has_aligned_rows(plan, read)) continue;
        const Buffer& buffer = plan.buffers[read.buffer];
        return fmt::format("rows of {} have {} bytes, want a multiple of 16", buffer.name,
                           shape_on(buffer, read.rank).cols * bytes_of(buffer.dtype));
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> remarks_on(const Plan& plan) {
  int64_t tiles = 0;
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != 0) continue;
    tiles += std::ranges::count_if(lane.tasks, is_gemm_tile);
  }
  std::vector<std::string> remarks;
  if (tiles == 0) return remarks;
  if (const auto rows = unaligned_rows(plan)) {
    remarks.push_back("slow: tiles run without tensor cores: " + *rows);
    return remarks;
  }
  if (has_few_rows(plan, 0)) return remarks;  // the GEMV kernel has tensor cores, too
  if (const auto reason = slow_tiles(plan)) {
    remarks.push_back("slow: tiles run without tensor cores: " + *reason);
  } else if (const double share = slow_share(plan); share > 0) {
    remarks.push_back(
        fmt::format("slow: {:.1f} % of the multiply-adds run without tensor cores (part_slow_tiles)", 100 * share));
  }
  return remarks;
}

std::vector<std::string> CudaGroup::remarks(const Plan& plan) const { return remarks_on(plan); }

}  // namespace tilewire::cuda
