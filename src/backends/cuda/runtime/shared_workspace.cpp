// Blocks of workspace for all operators of a group.
// Called when programs are loaded.
#include "backends/cuda/runtime/shared_workspace.hpp"

#include <algorithm>
#include <string>

#include "backends/cuda/runtime/chunks.hpp"
#include "backends/cuda/runtime/group.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {

WorkspaceBlock::WorkspaceBlock(CudaGroup& group, int64_t symmetric_bytes, int64_t local_bytes)
    : group_(group), symmetric_bytes_(symmetric_bytes), local_bytes_(local_bytes) {
  extent_ = group.carve(fmt::format("workspace of {} bytes for all operators", symmetric_bytes), symmetric_bytes);
  try {
    host::agree(group.ranks(), [&] {
      if (local_bytes > 0) local_ = new_device_memory(local_bytes, group.stream());
      return std::string();
    });
  } catch (const Error&) {
    group.give_back(extent_);
    throw;
  }
}

WorkspaceBlock::~WorkspaceBlock() { group_.give_back(extent_); }

void SharedWorkspace::reserve(int64_t symmetric_bytes, int64_t local_bytes) {
  if (current_ && current_->has_room(symmetric_bytes, local_bytes)) return;
  // NOTE: one that is outgrown leaves a gap, so that steps are large; and not much larger than what is wanted.
  static constexpr int64_t kMostMore = int64_t{32} << 20;
  const auto grown = [](int64_t wanted, int64_t before) {
    return wanted <= before ? before : round_up_to_granularity(std::max(wanted, before + std::min(before, kMostMore)));
  };
  auto next =
      std::make_shared<const WorkspaceBlock>(group_, grown(symmetric_bytes, current_ ? current_->symmetric_bytes_ : 0),
                                             grown(local_bytes, current_ ? current_->local_bytes_ : 0));
  // NOTE: calls under way do not hold the old one.
  if (current_) check(group_.calls().wait(), "cudaEventSynchronize");
  current_ = std::move(next);
}

}  // namespace tilewire::cuda
