// The records of the streams' work for a plan's lanes.
// Called by lane_tables.cpp.
#pragma once

#include <span>

#include "backends/cuda/tables/rank_view.hpp"

namespace tilewire::cuda {

/// The stream work of a task, which is not empty.
[[nodiscard]] StreamCopy stream_copy(const RankView& view, const Task& task);
[[nodiscard]] LibraryGemm library_gemm(const RankView& view, const Lane& lane, const Task& task);
/// Throws Error(unsupported) if tensors are not dense.
[[nodiscard]] LibraryCollective library_collective(const RankView& view, const Task& task);

/// Give a lane a notify stream for the completion doorbells of its copies, if many of them follow the copy before.
/// Returns whether it has one.
[[nodiscard]] bool add_notifier(std::span<StreamWork> copies);

/// Make data lanes kernels of their own, which begin when the waits of their first task are over: until then the
/// library can use their SMs. `doorbells`: those of the rank.
void start_workers_late(RankTables& tables, Doorbell* doorbells);
}  // namespace tilewire::cuda
