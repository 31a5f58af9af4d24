// The memory of a program on one rank's GPU.
// Made by CudaProgram.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/runtime/group.hpp"
#include "backends/cuda/tables/lane_tables.hpp"

namespace tilewire::cuda {

/// Whether a buffer is a caller's tensor.
[[nodiscard]] inline bool is_callers(const Buffer& buffer) {
  return buffer.scope == Scope::input || buffer.scope == Scope::output;
}

/// The memory of one program: in the arena its signals, doorbells and symmetric buffers that are not shared; counters;
/// and its part of the group's workspace.
class Workspace {
 public:
  /// Collective: reserves the group's workspace. `whole` has all ranks' lanes; `plan` has this rank's, and outlives it.
  Workspace(CudaGroup& group, const Plan& whole, const Plan& plan);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  /// All addresses for callers' tensors at `callers`, by buffer; these may be relative.
  [[nodiscard]] Addresses addresses(const std::vector<Base>& callers) const;
  [[nodiscard]] CallCounters* counters() const { return reinterpret_cast<CallCounters*>(counters_.get()); }
  /// Whether the program has double-buffered LL data (Buffer::copies).
  [[nodiscard]] bool has_copies() const { return has_copies_; }
  /// Allocate counters, load kernels, initialise all memory. When all ranks have done so, peers may write there.
  void fill();

 private:
  void fill_route();
  /// Offset of the moments in counters_.
  [[nodiscard]] int64_t moments_at() const;

  CudaGroup& group_;
  const Plan& plan_;
  host::Extent extent_;
  bool has_copies_ = false;
  int64_t doorbells_ = 0;  ///< offset in the extent, after the signals
  int64_t own_ = 0;        ///< offset of the symmetric buffers, after the doorbells
  /// CallCounters, then two counters per LaneRecord (a lane has up to two), then the moments of joined norms.
  std::shared_ptr<std::byte> counters_;
  std::vector<std::shared_ptr<std::byte>> route_;  ///< the groups of routing; last, the RouteTable
};

}  // namespace tilewire::cuda
