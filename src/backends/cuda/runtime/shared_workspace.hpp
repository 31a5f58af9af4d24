// Workspace that the operators of a group use in turn, as a rank's calls follow each other: a thousand of them take no
// more than the largest one does. Owned by a group; programs ask for room when they are loaded.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/host/arena.hpp"

namespace tilewire::cuda {

class CudaGroup;

/// Memory for every operator that asked for no more. It stays where it is as long as somebody holds it.
class WorkspaceBlock {
 public:
  /// Collective.
  WorkspaceBlock(CudaGroup& group, int64_t symmetric_bytes, int64_t local_bytes);
  WorkspaceBlock(const WorkspaceBlock&) = delete;
  WorkspaceBlock& operator=(const WorkspaceBlock&) = delete;
  ~WorkspaceBlock();

  /// No other block of the group has it, nor had it.
  [[nodiscard]] uint64_t id() const { return extent_.id; }
  /// In the arena, the same on all ranks.
  [[nodiscard]] int64_t symmetric() const { return extent_.offset; }
  [[nodiscard]] std::byte* local() const { return local_.get(); }
  [[nodiscard]] bool has_room(int64_t symmetric_bytes, int64_t local_bytes) const {
    return symmetric_bytes <= symmetric_bytes_ && local_bytes <= local_bytes_;
  }

 private:
  friend class SharedWorkspace;
  CudaGroup& group_;
  int64_t symmetric_bytes_;
  int64_t local_bytes_;
  host::Extent extent_;
  std::shared_ptr<std::byte> local_;
};

class SharedWorkspace {
 public:
  explicit SharedWorkspace(CudaGroup& group) : group_(group) {}

  /// From now on there is room for so many bytes. Collective. Where there was less, `current` is another block: graphs
  /// that have calls with the old one hold it, and calls under way are waited for.
  void reserve(int64_t symmetric_bytes, int64_t local_bytes);
  /// What the calls to come use.
  [[nodiscard]] const std::shared_ptr<const WorkspaceBlock>& current() const { return current_; }

 private:
  CudaGroup& group_;
  std::shared_ptr<const WorkspaceBlock> current_;
};

}  // namespace tilewire::cuda
