// One rank's membership in a team of GPUs: a host group for agreement and deadlines, a device, and symmetric memory.
// Made by join and launch; programs carve their workspace out of it.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/kernels/head.hpp"
#include "backends/cuda/runtime/abort_watch.hpp"
#include "backends/cuda/runtime/call_order.hpp"
#include "backends/cuda/runtime/driver.hpp"
#include "backends/cuda/runtime/failures.hpp"
#include "backends/cuda/runtime/side_streams.hpp"
#include "backends/cuda/runtime/symmetric_memory.hpp"
#include "backends/cuda/vendor/cublaslt.hpp"
#include "backends/cuda/vendor/nccl.hpp"
#include "backends/host/group.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::cuda {

class CudaGroup final : public Group {
 public:
  /// Collective. Throws the same Error on all ranks if one of them finds no usable GPU.
  CudaGroup(std::unique_ptr<host::HostGroup> ranks, const JoinOptions& options);
  ~CudaGroup() override;

  [[nodiscard]] const Team& team() const override { return team_; }
  [[nodiscard]] std::string backend() const override { return "cuda"; }
  [[nodiscard]] std::string hardware() const override { return hardware_; }
  /// The data are in device memory: a kernel or a copy fills them, not the host.
  [[nodiscard]] Tensor allocate(DType dtype, int64_t rows, int64_t cols) override;
  void free(const Tensor& tensor) override;
  void adopt(const std::vector<std::byte*>& at, int64_t bytes) override;
  [[nodiscard]] std::optional<int64_t> place_of(const Tensor& tensor) const override {
    return reachable_.place_of(tensor);
  }
  [[nodiscard]] std::shared_ptr<std::byte> new_memory(int64_t bytes) const override;
  [[nodiscard]] bool captures(void* stream) const override;
  [[nodiscard]] bool host_addresses_memory() const override { return false; }
  void copy(void* to, const void* from, int64_t bytes) const override;
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& mine) override {
    return ranks_->all_gather(mine);
  }
  [[nodiscard]] Target target() const override;
  [[nodiscard]] std::vector<std::string> unsupported(const Plan& plan) const override;
  [[nodiscard]] std::vector<std::string> remarks(const Plan& plan) const override;
  [[nodiscard]] std::unique_ptr<Program> load(const Plan& plan) override;
  void fail_with(const Error& error) override { ranks_->fail_with(error); }

  [[nodiscard]] int rank() const { return team_.rank; }
  /// The same ranks on the host. Each extent of the device's arena also exists in the host group's arena: shared host
  /// memory, committed when it is touched.
  [[nodiscard]] host::HostGroup& ranks() const { return *ranks_; }
  [[nodiscard]] const Driver& driver() const { return driver_; }
  /// cuBLASLt on this rank's GPU, created at the first use. Throws Error(unsupported) if it is missing.
  [[nodiscard]] Library& library();
  /// kLibraryWorkspace bytes for calls of cuBLASLt, one at a time; allocated at the first use.
  [[nodiscard]] std::byte* library_workspace();
  /// Make at least `bytes` of workspace on every rank, which all programs use, one call after another. Existing
  /// workspace keeps its address. Collective, with the same number on all ranks. Throws the same Error on all of them:
  /// invalid_input if it is more than JoinOptions::arena_bytes, or if a GPU has no room.
  void reserve_workspace(int64_t bytes);
  /// The address of byte `offset` of the workspace of `rank`.
  [[nodiscard]] std::byte* workspace_at(int rank, int64_t offset) const { return workspace_->base(rank) + offset; }
  /// Make at least `bytes` in each copy of the double-buffered LL data on every rank, which all programs use; new
  /// memory has all bits 1. Otherwise as reserve_workspace. Peers may store there when all ranks have returned.
  void reserve_copies(int64_t bytes);
  /// The address of byte `offset` of the first copy of `rank`.
  [[nodiscard]] std::byte* copied_at(int rank, int64_t offset) const { return copies_[0]->base(rank) + offset; }
  /// Bytes from the first copy to the second, on every rank.
  [[nodiscard]] uint64_t copy_distance() const {
    return reinterpret_cast<uint64_t>(copies_[1]->base(0)) - reinterpret_cast<uint64_t>(copies_[0]->base(0));
  }
  /// Prepare NCCL for these calls; the first time, create its communicator. Collective. Throws the same Error on all
  /// ranks. After a failure of NCCL, `unsupported` reports it.
  void prepare(const std::vector<LibraryCollective>& calls);
  /// A prepared call. Must not outlive the group.
  [[nodiscard]] std::unique_ptr<LibraryCall> bind(const LibraryCollective& call) const;
  /// This rank's GPU, in this process's numbers.
  [[nodiscard]] int device() const override { return device_; }
  /// Whether ranks of the team share a device.
  [[nodiscard]] bool shares_device() const { return shares_device_; }

  /// Carve `bytes` out of every rank's arena, with undefined content. Collective, with the same `what` on all ranks.
  /// Throws Error(invalid_input), the same on all ranks, if the arena or a GPU has no room.
  [[nodiscard]] host::Extent carve(const std::string& what, int64_t bytes);
  /// Not collective: the part is reused when all ranks have given it back. No kernel of this rank may still use it.
  void give_back(const host::Extent& extent) { ranks_->give_back(extent); }
  /// The address of byte `offset` of the arena of `rank`, for this rank's device and for CUDA's host functions.
  [[nodiscard]] std::byte* at(int rank, int64_t offset) const { return memory_->base(rank) + offset; }
  [[nodiscard]] const ReachableMemory& reachable() const { return reachable_; }
  [[nodiscard]] Head* head(int rank) const { return reinterpret_cast<Head*>(at(rank, 0)); }
  /// kStatusBytes of host memory, zeroed at start. This rank's device addresses it by the same pointer.
  [[nodiscard]] std::byte* status_page() const { return status_page_.get(); }
  /// How waits of this rank's kernels end. `owner`: see Failures::add.
  [[nodiscard]] WaitWatch watch_of(uint32_t owner) const;
  [[nodiscard]] Failures& failures() const { return *failures_; }
  /// Why this rank's kernels gave up, if they did; the group is then broken for all ranks.
  std::optional<Error> find_failure();
  [[nodiscard]] CallSequence& calls() const { return *calls_; }
  /// The stream of calls without a caller's stream.
  [[nodiscard]] cudaStream_t call_stream() const { return call_stream_.get(); }
  [[nodiscard]] SideStreams& side_streams() { return side_streams_; }
  /// An internal stream of this rank's device, for copies on which no queued work waits.
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

  /// Whether no rank has a budget of SMs.
  [[nodiscard]] bool has_whole_gpus() const { return whole_gpus_; }

 private:
  void start(const JoinOptions& options);
  void choose_device(const JoinOptions& options);
  host::Extent back_with_memory(const host::Extent& extent);
  void settle_what_was_freed();
  /// Abort NCCL's work on this rank's GPU, as the team is broken. Called by the watch's thread.
  void abort_communicator();
  /// Zero a part of this rank's arena, then wait until all ranks have done so.
  void zero(const host::Extent& extent);

  std::unique_ptr<host::HostGroup> ranks_;
  int exceptions_;
  Driver driver_;
  Team team_;
  int device_ = 0;
  std::vector<int> cluster_sms_{};  ///< the minimum over all ranks' GPUs (Target)
  std::string hardware_;
  std::string kind_ = "gpu";  ///< of all ranks' GPUs, "h200"
  bool shares_device_ = false;
  bool whole_gpus_ = true;  ///< no rank has a budget of SMs
  CallOrder order_ = CallOrder::any;
  std::vector<int> devices_;
  HostMemory status_page_;
  std::unique_ptr<Failures> failures_;
  std::unique_ptr<CallSequence> calls_;
  Stream stream_;
  Stream call_stream_;
  SideStreams side_streams_;
  std::unique_ptr<SymmetricMemory> memory_;
  std::unique_ptr<SymmetricMemory> workspace_;
  std::array<std::unique_ptr<SymmetricMemory>, 2> copies_;
  ReachableMemory reachable_;      ///< its arena is `memory_`
  bool has_freed_ = false;         ///< a tensor was freed after the last carve
  std::mutex communicator_mutex_;  ///< the watch uses the communicator, too
  std::unique_ptr<Communicator> communicator_;
  std::string no_communicator_;  ///< why NCCL has failed; empty = it has not
  std::unique_ptr<AbortWatch> watch_;
  std::unique_ptr<Library> library_;
  std::shared_ptr<std::byte> library_workspace_;
};

}  // namespace tilewire::cuda
