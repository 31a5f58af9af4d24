// The memory of one program: signals and symmetric workspace in the arena, and its own local workspace.
// Owned by HostProgram.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "backends/host/addresses.hpp"
#include "backends/host/group.hpp"
#include "core/in_place.hpp"

namespace tilewire::host {

class Workspace {
 public:
  /// Collective. `whole` is the plan with all ranks' lanes; the program executes `plan`, to which addresses refer.
  Workspace(HostGroup& group, const Plan& whole, const Plan& plan);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  [[nodiscard]] const Addresses& addresses() const { return addresses_; }
  [[nodiscard]] Slot& slot(const Signal& signal) const;
  /// Throw Error(invalid_input) unless the callers' tensors match the plan's buffers.
  void check(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const;
  /// Set the addresses of the callers' buffers, and store the positions of those in the arena for the peers.
  void bind(std::span<const Tensor> inputs, std::span<const Tensor> outputs);
  /// Call number `call` begins: it uses copy `call` % 2 of double-buffered LL data.
  void begin_call(uint64_t call) { addresses_.use_copy(static_cast<int>(call % 2)); }

 private:
  [[nodiscard]] std::byte* start(int rank) const { return group_.segment().arena(rank) + extent_.offset; }
  [[nodiscard]] std::atomic<int64_t>* announced(int rank, int buffer) const;
  /// Collective: either all ranks map it, or all throw the same Error.
  void map_local();
  void release();
  void place_buffers();

  HostGroup& group_;
  const Plan& plan_;
  Addresses addresses_;
  std::vector<InPlace> in_place_;
  int64_t announced_offset_ = 0;
  int64_t symmetric_offset_ = 0;
  Extent extent_;
  std::byte* local_ = nullptr;
  int64_t local_bytes_ = 0;
};

}  // namespace tilewire::host
