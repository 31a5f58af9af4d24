// One rank's membership in a team of GPUs: a host group for agreement and deadlines, a device, and memory that all
// ranks' devices address.
// Made by join and launch; programs carve their workspace out of it.
#pragma once

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
  /// Collective. Throws the same Error on all ranks where one of them finds no GPU that it can use.
  CudaGroup(std::unique_ptr<host::HostGroup> ranks, const JoinOptions& options);
  ~CudaGroup() override;

  [[nodiscard]] const Team& team() const override { return team_; }
  [[nodiscard]] std::string backend() const override { return "cuda"; }
  [[nodiscard]] std::string hardware() const override { return hardware_; }
  /// The data is the device's: a kernel or a copy fills it, not the host.
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
  /// The same ranks on the host. Its arena has the extents of the device's: every extent exists a second time in memory
  /// that the host's processes share, committed as it is touched.
  [[nodiscard]] host::HostGroup& ranks() const { return *ranks_; }
  [[nodiscard]] const Driver& driver() const { return driver_; }
  /// cuBLASLt on my GPU, from the first use. Throws Error(unsupported) where it is missing.
  [[nodiscard]] Library& library();
  /// kLibraryWorkspace bytes for its calls, of which one is under way at a time; from the first use.
  [[nodiscard]] std::byte* library_workspace();
  /// Have at least so many bytes of workspace on every rank, which all programs use, one call after another. What there
  /// is stays where it is. Collective, with the same number on all ranks. Throws the same Error on all of them:
  /// invalid_input where it is more than JoinOptions::arena_bytes, or a GPU has no room.
  void reserve_workspace(int64_t bytes);
  /// Byte `offset` of the workspace of `rank`, as `at` has it of the arena.
  [[nodiscard]] std::byte* workspace_at(int rank, int64_t offset) const { return workspace_->base(rank) + offset; }
  /// Make NCCL ready for these calls; its communicator is made the first time. Collective. Throws the same Error on all
  /// ranks; where NCCL has failed once, `unsupported` says so from then on.
  void prepare(const std::vector<LibraryCollective>& calls);
  /// What was prepared, at its addresses. Must not outlive the group.
  [[nodiscard]] std::unique_ptr<LibraryCall> bind(const LibraryCollective& call) const;
  /// My GPU, as this process numbers them.
  [[nodiscard]] int device() const override { return device_; }
  /// Whether another rank has this device too.
  [[nodiscard]] bool shares_device() const { return shares_device_; }

  /// Carve `bytes` out of every rank's arena; its content is undefined. Collective; all ranks must want the same
  /// `what`. Throws Error(invalid_input), the same on all ranks, where the arena or a GPU has no room.
  [[nodiscard]] host::Extent carve(const std::string& what, int64_t bytes);
  /// Not collective: the part is reused when all ranks have given it back. No kernel of mine may use it any more.
  void give_back(const host::Extent& extent) { ranks_->give_back(extent); }
  /// Where byte `offset` of the arena of `rank` lies: a pointer for my device, and for the host's calls.
  [[nodiscard]] std::byte* at(int rank, int64_t offset) const { return memory_->base(rank) + offset; }
  [[nodiscard]] const ReachableMemory& reachable() const { return reachable_; }
  [[nodiscard]] Head* head(int rank) const { return reinterpret_cast<Head*>(at(rank, 0)); }
  /// kStatusBytes in the host's memory, which my device addresses by the same pointer; zeroed at start.
  [[nodiscard]] std::byte* status_page() const { return status_page_.get(); }
  /// How waits of my kernels end. `owner`: see Failures::add.
  [[nodiscard]] WaitWatch watch_of(uint32_t owner) const;
  [[nodiscard]] Failures& failures() const { return *failures_; }
  /// Why my kernels gave up, if they did: the group is then broken for all.
  std::optional<Error> find_failure();
  [[nodiscard]] CallSequence& calls() const { return *calls_; }
  /// For calls of which no caller says in what stream they come.
  [[nodiscard]] cudaStream_t call_stream() const { return call_stream_.get(); }
  [[nodiscard]] SideStreams& side_streams() { return side_streams_; }
  /// A stream of my device that no caller knows, for copies that nothing waits for in a queue.
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

 private:
  void start(const JoinOptions& options);
  void choose_device(const JoinOptions& options);
  host::Extent back_with_memory(const host::Extent& extent);
  void settle_what_was_freed();
  /// The team is broken: what NCCL does on my GPU ends. By the watch's thread.
  void abort_communicator();
  /// Zero a part of my arena, then let nobody pass before all have done so.
  void zero(const host::Extent& extent);

  std::unique_ptr<host::HostGroup> ranks_;
  int exceptions_;
  Driver driver_;
  Team team_;
  int device_ = 0;
  std::vector<int> cluster_sms_{};  ///< the fewest of any rank's GPU (Target)
  std::string hardware_;
  std::string kind_ = "gpu";  ///< of all ranks' GPUs: "h200"
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
  ReachableMemory reachable_;      ///< its arena is `memory_`
  bool has_freed_ = false;         ///< a tensor, since memory was carved last
  std::mutex communicator_mutex_;  ///< the watch asks for it, too
  std::unique_ptr<Communicator> communicator_;
  std::string no_communicator_;  ///< why NCCL has failed
  std::unique_ptr<AbortWatch> watch_;
  std::unique_ptr<Library> library_;
  std::shared_ptr<std::byte> library_workspace_;
};

}  // namespace tilewire::cuda
