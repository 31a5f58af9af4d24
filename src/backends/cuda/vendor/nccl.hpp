// NCCL as a provider of whole collectives: looked up when it is needed, never linked; one communicator for a team.
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

/// Why NCCL cannot be called, or nothing. Loads it for good.
[[nodiscard]] std::optional<std::string> missing_nccl(const char* name = kNcclName);
/// "2.28.9"; empty where it is missing.
[[nodiscard]] std::string nccl_version(const char* name = kNcclName);

/// One rank's part of a collective, dense in memory.
struct LibraryCollective {
  Collective kind = Collective::none;
  const std::byte* from = nullptr;  ///< it and `to` may be relative
  std::byte* to = nullptr;
  int64_t from_elements = 0;
  int64_t to_elements = 0;
  DType dtype = DType::bf16;
};

/// NCCL's communicator of a team. What NCCL does on the host is done by threads of its own, which are left behind where
/// it does not come back in time: peers may have died inside it.
class Communicator {
 public:
  /// Collective. `device` is this rank's, and nobody else's of the team. Throws the same Error on all ranks:
  /// unsupported where the library is missing, fails, or does not come back; rank_lost.
  Communicator(host::HostGroup& ranks, int device, const char* name = kNcclName);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Waits some seconds for peers that end it later, and for graphs that have its calls.
  ~Communicator();

  /// Do each once on memory of its own: ways between ranks are made, and kernels are loaded, by the first call of a
  /// kind and size. Collective, with the same calls on all ranks; addresses do not count. Throws as the constructor;
  /// NCCL's failures abort it.
  void prepare(const std::vector<LibraryCollective>& calls);
  /// Whether it was given up; then all its calls are, too.
  [[nodiscard]] bool aborted() const;
  /// The call must not outlive the communicator.
  [[nodiscard]] std::unique_ptr<LibraryCall> bind(const LibraryCollective& call) const;
  /// From any thread, when the team is broken: what runs on the device leaves, and no call is enqueued any more. Does
  /// not wait.
  void abort();

 private:
  struct State;
  void start(const std::string& id);

  host::HostGroup& ranks_;
  int device_;
  std::shared_ptr<State> state_;
};

}  // namespace tilewire::cuda
