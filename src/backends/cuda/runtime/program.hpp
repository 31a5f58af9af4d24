// A plan that one rank's GPU executes: workspace, counters, tables for each layout of callers' tensors, launches.
// Made by CudaGroup::load.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backends/cuda/kernels/plain_ops.hpp"
#include "backends/cuda/kernels/workers.hpp"
#include "backends/cuda/runtime/device_clock.hpp"
#include "backends/cuda/runtime/group.hpp"
#include "backends/cuda/tables/lane_tables.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::cuda {

/// The memory of one program: signals and what no other may use in the arena, counters; and its part of the group's
/// workspace.
class Workspace {
 public:
  /// Collective: the group's workspace has room for it. `whole` has all ranks' lanes; `plan`, mine only, outlives it.
  Workspace(CudaGroup& group, const Plan& whole, const Plan& plan);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  /// Where everything lies when callers' tensors lie at `callers`, by buffer; these may be relative.
  [[nodiscard]] Addresses addresses(const std::vector<Base>& callers) const;
  [[nodiscard]] CallCounters* counters() const { return reinterpret_cast<CallCounters*>(counters_.get()); }
  /// Get counters, load kernels, and give all memory its first values; when all ranks have, peers may write here.
  void fill();

 private:
  CudaGroup& group_;
  const Plan& plan_;
  host::Extent extent_;
  int64_t doorbells_ = 0;                ///< in the extent, after the signals
  int64_t own_ = 0;                      ///< and then symmetric buffers
  std::shared_ptr<std::byte> counters_;  ///< the call's, then two of 64 bits for each lane, and for what is left of it
                                         ///< after a stream-ordered call of the library
};

class CudaProgram final : public Program {
 public:
  CudaProgram(CudaGroup& group, const Plan& plan);
  ~CudaProgram() override;
  /// A caller's stream may be part of a capture: the call is then part of the graph, for all replays.
  void run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const RunOptions& options) override;
  void wait() override;
  [[nodiscard]] std::optional<Error> failure() override;
  /// In bursts.cpp.
  [[nodiscard]] std::optional<BurstTime> time_on_device(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                                        const Burst& burst) override;
  /// Waits for the call's end. NOTE: the clocks of host and device drift apart by some us in a second: ask soon.
  [[nodiscard]] Trace trace() const override;

 private:
  /// Tables for callers' tensors that lie alike: with the same strides and low bits of addresses.
  struct Bound {
    std::vector<Base> layout;   ///< callers' tensors, at relative addresses
    std::vector<Base> current;  ///< where they lie in the next call
    Bases bases{};              ///< for these
    bool absolute = false;      ///< the tables are for `current` alone (serves_any_address)
    bool traced = false;
    uint32_t owner = 0;     ///< in reports
    bool captured = false;  ///< a graph may replay it: not to be replaced
    RankTables tables;
    DeviceTable gemm;
    WorkerTable workers;
    WorkerTable after;            ///< what a kernel executes after a stream-ordered call of the library
    PlainOps plain, plain_after;  ///< of `execute` before such a call, and of `after`
    std::shared_ptr<std::byte> memory, plain_memory, plain_after_memory;
    std::shared_ptr<std::byte> spans;  ///< a TaskSpan for each of the tables' names, where calls are traced
    /// One for each of the tables' works; none where no library is called.
    std::vector<std::unique_ptr<LibraryCall>> calls;
    Graph replay{};              ///< of a call, from the first burst of replays on
    std::vector<Base> replayed;  ///< callers' tensors of that call
  };

  [[nodiscard]] std::vector<Base> bases_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const;
  Bound& bind(const std::vector<Base>& callers, bool traced, bool keep);
  [[nodiscard]] std::vector<Base> layout_of(const std::vector<Base>& callers) const;
  [[nodiscard]] Bases bases_at(const std::vector<Base>& callers) const;
  void require_tensors_here(const std::vector<Base>& callers) const;
  void move_to(Bound& bound, const std::vector<Base>& callers);
  std::unique_ptr<Bound> new_bound(const std::vector<Base>& callers, bool traced);
  void make_room();
  /// A captured call with these tensors, made once; it goes with the program.
  const Graph& replay_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool traced);
  [[nodiscard]] RankTables tables_for(const std::vector<Base>& callers, bool traced) const;
  [[nodiscard]] ClockMatch match_with_host() const;
  [[nodiscard]] std::vector<StreamWork> made_up_works() const;
  void prepare_library(const std::vector<LibraryGemm>& gemms);
  [[nodiscard]] std::unique_ptr<LibraryCall> bind_call(const StreamWork& work);
  void enqueue_call(const Bound& bound, cudaStream_t stream, uint64_t capture);
  void enqueue_all(const Bound& bound, cudaStream_t stream, uint64_t capture);
  void enqueue_stream_ordered(const Bound& bound, const WorkerLaunch& before, cudaStream_t stream);
  void enqueue_kernels(const Bound& bound, const WorkerLaunch& all, cudaStream_t stream);
  void enqueue_work(const Bound& bound, size_t index, const WorkerLaunch& workers, const SideStream& side,
                    bool captured);
  void throw_if_failed();
  [[nodiscard]] Error describe(const Bound& bound, const WaitFailure& failure) const;

  CudaGroup& group_;
  Plan plan_;
  std::vector<int> lanes_;                    ///< mine, in the whole plan
  std::vector<int64_t> totals_;               ///< signal_totals of the whole plan
  std::vector<std::vector<int64_t>> places_;  ///< see order_of_tasks; of my lanes
  Workspace workspace_;
  std::vector<std::unique_ptr<Bound>> bound_;  ///< most recent first
  const Bound* traced_ = nullptr;              ///< of the last call, if it is traced
  ClockMatch clock_{};                         ///< where ranks share a device: since the program was loaded
};

}  // namespace tilewire::cuda
