// NCCL for whole collectives: looked up at run time, never linked; one communicator for a team.
// Used by programs for tasks of kind collective_call, and by `tilewire info`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/vendor/cublaslt.hpp"
#include "backends/host/group.hpp"
#include "tilewire/plan.hpp"

namespace tilewire::cuda {

inline constexpr const char* kNcclName = "libnccl.so.2";

/// Why NCCL cannot be called, or nothing. It stays loaded.
[[nodiscard]] std::optional<std::string> missing_nccl(const char* name = kNcclName);
/// "2.28.9"; empty if it is missing.
[[nodiscard]] std::string nccl_version(const char* name = kNcclName);

/// One rank's part of a collective, dense in memory.
struct LibraryCollective {
  Collective kind = Collective::none;
  const std::byte* from = nullptr;  ///< this and `to` may be relative
  std::byte* to = nullptr;
  int64_t from_elements = 0;
  int64_t to_elements = 0;
  DType dtype = DType::bf16;
};

/// NCCL's communicator of a team. Threads of its own call NCCL's blocking functions; if one does not return in time, as
/// when peers died, its thread is left behind.
class Communicator {
 public:
  /// Collective. No other rank of the team may have `device`. Throws the same Error on all ranks: unsupported if the
  /// library is missing, fails, or does not return; rank_lost.
  Communicator(host::HostGroup& ranks, int device, const char* name = kNcclName);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Waits some seconds for peers that end the communicator later, and for graphs that have its calls.
  ~Communicator();

  /// Make each call once, on scratch memory: the first call of a kind and size connects ranks and loads kernels.
  /// Collective, with the same calls on all ranks; their addresses do not matter. Throws as the constructor; a failure
  /// of NCCL aborts the communicator.
  void prepare(const std::vector<LibraryCollective>& calls);
  /// Whether it was aborted; then all of its calls are, too.
  [[nodiscard]] bool aborted() const;
  /// The call must not outlive the communicator.
  [[nodiscard]] std::unique_ptr<LibraryCall> bind(const LibraryCollective& call) const;
  /// Call it when the team is broken, from any thread: the communicator's kernels end, and no further call is enqueued.
  /// Does not wait.
  void abort();

 private:
  struct State;
  void start(const std::string& id);

  host::HostGroup& ranks_;
  int device_;
  std::shared_ptr<State> state_;
};

}  // namespace tilewire::cuda
