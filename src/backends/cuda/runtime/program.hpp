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
#include "backends/cuda/runtime/workspace.hpp"
#include "backends/cuda/tables/lane_tables.hpp"
#include "core/in_place.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::cuda {

class CudaProgram final : public Program {
 public:
  CudaProgram(CudaGroup& group, const Plan& plan);
  ~CudaProgram() override;
  /// A caller's stream may be in a capture: the call is then part of the graph, for all replays.
  void run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const RunOptions& options) override;
  void wait() override;
  [[nodiscard]] std::optional<Error> failure() override;
  /// In bursts.cpp.
  [[nodiscard]] std::optional<BurstTime> time_on_device(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                                        const Burst& burst) override;
  /// Waits for the end of the call. NOTE: call it soon: the clocks of host and device drift apart by some us in a
  /// second.
  [[nodiscard]] Trace trace() const override;

 private:
  /// Tables for one layout of callers' tensors: their strides, and their addresses modulo kBaseAlignment.
  struct Bound {
    std::vector<Base> layout;   ///< callers' tensors, at relative addresses
    std::vector<Base> current;  ///< their addresses in the next call
    Bases bases{};              ///< for `current`
    bool absolute = false;      ///< the tables are for `current` alone (serves_any_address)
    bool traced = false;
    uint32_t owner = 0;     ///< number of the launcher in reports
    bool captured = false;  ///< a graph may replay it: do not remove
    RankTables tables;
    DeviceTable gemm;
    std::vector<DeviceTable> grouped;  ///< of the tables' grouped GEMMs
    WorkerTable workers;
    WorkerTable after;            ///< the lanes after a stream-ordered GEMM
    PlainOps plain, plain_after;  ///< of `workers` and `after` beside such a GEMM
    std::shared_ptr<std::byte> memory, plain_memory, plain_after_memory;
    std::shared_ptr<std::byte> spans;  ///< a TaskSpan for each of the tables' names, if calls are traced
    /// One for each of the tables' works; null if the work calls no library.
    std::vector<std::unique_ptr<LibraryCall>> calls;
    Graph replay{};              ///< of a call, made for the first burst of replays
    std::vector<Base> replayed;  ///< callers' tensors of `replay`
  };

  [[nodiscard]] std::vector<Base> bases_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const;
  Bound& bind(const std::vector<Base>& callers, bool traced, bool keep);
  [[nodiscard]] std::vector<Base> layout_of(const std::vector<Base>& callers) const;
  [[nodiscard]] Bases bases_at(const std::vector<Base>& callers) const;
  void require_tensors_here(const std::vector<Base>& callers) const;
  void move_to(Bound& bound, const std::vector<Base>& callers);
  std::unique_ptr<Bound> new_bound(const std::vector<Base>& callers, bool traced);
  void make_room();
  /// A captured call with these tensors, made once; it lives as long as the program.
  const Graph& replay_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool traced);
  [[nodiscard]] RankTables tables_for(const std::vector<Base>& callers, bool traced) const;
  [[nodiscard]] ClockMatch match_with_host() const;
  [[nodiscard]] std::vector<StreamWork> made_up_works() const;
  void prepare_library(const std::vector<LibraryGemm>& gemms);
  [[nodiscard]] std::unique_ptr<LibraryCall> bind_call(const StreamWork& work);
  void enqueue_call(const Bound& bound, cudaStream_t stream, uint64_t capture);
  void enqueue_all(const Bound& bound, cudaStream_t stream, uint64_t capture);
  /// Whether kernels for few rows may begin before the kernel before them in the stream ends.
  [[nodiscard]] bool launches_early() const;
  void enqueue_grouped(const Bound& bound, const WorkerLaunch& workers, cudaStream_t stream);
  void enqueue_stream_ordered(const Bound& bound, const WorkerLaunch& before, cudaStream_t stream);
  void enqueue_kernels(const Bound& bound, const WorkerLaunch& all, cudaStream_t stream);
  void enqueue_work(const Bound& bound, size_t index, const WorkerLaunch& workers, const SideStream& side,
                    bool captured);
  void throw_if_failed();
  [[nodiscard]] Error describe(const Bound& bound, const WaitFailure& failure) const;

  CudaGroup& group_;
  Plan plan_;
  std::vector<int> lanes_;                    ///< numbers of this rank's lanes in the whole plan
  std::vector<int64_t> totals_;               ///< signal_totals of the whole plan
  std::vector<std::vector<int64_t>> places_;  ///< order_of_tasks, of this rank's lanes
  std::vector<InPlace> in_place_;
  Workspace workspace_;
  std::vector<std::unique_ptr<Bound>> bound_;  ///< most recently used first
  const Bound* traced_ = nullptr;              ///< the tables of the last call, if it was traced
  ClockMatch clock_{};                         ///< if ranks share a device: matched when the program was loaded
};

}  // namespace tilewire::cuda
