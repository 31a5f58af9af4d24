// From a lowered plan to the records of one rank's kernels.
// Called by cuda programs for each new layout of callers' tensors.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/kernels/gemv.hpp"
#include "backends/cuda/kernels/rows.hpp"
#include "backends/cuda/kernels/worker_table.hpp"
#include "backends/cuda/tables/gemm_table.hpp"
#include "backends/cuda/tables/stream_work.hpp"
#include "lower/tensor_cores.hpp"
#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// The first element of a buffer of one rank, as this rank's device addresses it.
struct Base {
  std::byte* data = nullptr;  ///< may be relative (kernels/bases.hpp)
  int64_t ld = 0;             ///< elements
  int part = 0;               ///< of a caller's tensor that peers address: number of its memory in ReachableMemory

  bool operator==(const Base&) const = default;
};

/// The addresses of all memory, as one rank sees them.
struct Addresses {
  std::vector<Base> bases{};  ///< [rank * number of buffers + buffer]
  /// The address of a signal's counter.
  std::function<uint64_t*(const Signal&)> signal{};
  uint64_t* progress = nullptr;   ///< zeroed counters: two per LaneRecord (a lane of the rank has up to two)
  Doorbell* doorbells = nullptr;  ///< most_stream_work of them, zeroed
  Moments* moments = nullptr;     ///< kMostMoments, if norms are joined to tiles
  std::byte* route = nullptr;     ///< the RouteTable, if the rank routes
};

/// A WorkerTable in the making, on the host.
struct HostWorkerTable {
  std::vector<LaneRecord> lanes{};
  std::vector<OpRecord> ops{};
  std::vector<SourceRecord> sources{};
  std::vector<TargetRecord> targets{};
  std::vector<EpilogueRecord> epilogue{};
  std::vector<WaitRecord> waits{};
  std::vector<PostRecord> posts{};
  uint32_t helper_ctas = 0;
};

/// The task of a number that the device reports.
struct TaskName {
  int lane = 0;  ///< number among the lanes of the tables' plan
  int64_t task = 0;
  /// Another record has the task's times: this one opens the doorbell of its lane's kernel, pads a pair, or is a later
  /// part of K.
  bool again = false;
  bool sum = false;  ///< the sum of the task's addends; the record before has the times of the task itself
};

/// A kernel that multiplies groups.
struct GroupedKernel {
  HostTable table{};
  GemmBodyKind kind{};
};

/// The tables of one rank's call.
struct RankTables {
  HostTable gemm{};
  GemmBodyKind kind{};
  uint32_t gemm_ctas = 0;
  ClusterShape cluster{};  ///< of the tiles' CTAs
  HostWorkerTable workers{};
  std::vector<StreamWork> works{};  ///< lane by lane
  std::vector<StreamUse> streams{};
  bool lanes_apart = false;              ///< data lanes are works: the call's kernel has tiles and sync-only lanes only
  bool stream_ordered = false;           ///< the only work, a GEMM, is between two kernels (LaneRecord::after)
  bool experts = false;                  ///< lanes have ops of mixture of experts
  std::vector<GroupedKernel> grouped{};  ///< instead of that GEMM: grouped GEMMs, one after another
  Preamble first{};                      ///< of the kernel before the GEMM
  Preamble preamble{};                   ///< of the kernel after the GEMM
  std::optional<GemvTable> gemv{};       ///< the GEMV kernel is the call; `workers` has sync-only lanes alone
  std::optional<RowTable> rows{};        ///< the same with the kernel of rows
  std::vector<TaskName> names{};         ///< by TileRecord::task and OpRecord::task
};

/// Why tiles of the plan cannot use their `cluster_split_k` (tile shape, columns of A), or nothing.
[[nodiscard]] std::optional<std::string> refuses_cluster_split_k(const Plan& plan);

/// The largest `cluster_split_k` of tiles in the plan's first kernel.
[[nodiscard]] int most_split_k(const Plan& plan);
/// The parameters of the plan's first product.
[[nodiscard]] GemmParams gemm_params_of(const Plan& plan);
/// The body of the plan's tiles, without sums.
[[nodiscard]] GemmBodyKind kind_of(const Plan& plan);

/// What a rank may use of its device.
struct Room {
  int sms = 0;          ///< CTAs that may be resident at once
  bool streams = true;  ///< streams may wait for doorbells; not if ranks share a device, and so its queues
  bool traced = false;  ///< all work of streams has a doorbell, to record its times
};

/// Swap tiles within each wave, so that every CTA (cluster) completes about equally many sums: otherwise, if tiles of
/// the own shard alternate with those of peers, the same CTAs complete a sum in every wave. Keep the plan's order if it
/// costs the slowest CTA less, since a sum cannot be late if the CTA's next tile waits (comes_late). NOTE: no tile
/// changes its wave. So each CTA's tiles stay in the plan's order, on which the absence of deadlocks rests (TileNeeds).
void spread_sums(RankTables& tables);

/// Remove the waits of a tile or op that repeat waits of earlier ones of the same CTA: a CTA takes its tiles, and its
/// ops of a lane, in order, and signals only grow. A tile or op keeps all of its waits or none. A tile keeps its waits
/// for partials.
void drop_repeated_waits(RankTables& tables);

/// Whether kernels can take the tables with relative addresses: a launch can carry the maps of such addresses, and no
/// op with such addresses has more than kRecordsAtHand records.
[[nodiscard]] bool serves_any_address(const RankTables& tables);

/// Lanes and CTAs of one kernel: the one `after` a stream-ordered GEMM, or else the one before it, or the call's only
/// kernel.
[[nodiscard]] WorkerTable counts_of(const HostWorkerTable& workers, bool after);

/// `plan`: lowered, with the lanes of `rank` only. `totals`: signal_totals of the whole plan. Throws
/// Error(invalid_input) if a lane has no workers, or if more CTAs wait for each other than there are SMs.
[[nodiscard]] RankTables make_tables(const Plan& plan, int rank, const Addresses& addresses,
                                     const std::vector<int64_t>& totals, const Room& room);

}  // namespace tilewire::cuda
