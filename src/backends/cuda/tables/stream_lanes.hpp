// The records of what streams do for a plan's lanes.
// Called by lane_tables.cpp.
#pragma once

#include <span>

#include "backends/cuda/tables/rank_view.hpp"

namespace tilewire::cuda {

/// What a task, which is not empty, is for a stream.
[[nodiscard]] StreamCopy stream_copy(const RankView& view, const Task& task);
[[nodiscard]] LibraryGemm library_gemm(const RankView& view, const Lane& lane, const Task& task);
/// Throws Error(unsupported) where tensors are not dense.
[[nodiscard]] LibraryCollective library_collective(const RankView& view, const Task& task);

/// Have a notifier say which of a lane's copies are done, where many follow the one before them. Returns whether it
/// does.
[[nodiscard]] bool add_notifier(std::span<StreamWork> copies);

/// Heavy lanes become kernels of their own, which begin when the waits of their first task have ended: until then their
/// SMs are the library's. `doorbells`: those of the rank.
void start_workers_late(RankTables& tables, Doorbell* doorbells);
}  // namespace tilewire::cuda
