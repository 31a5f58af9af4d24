// From a plan to the records that one rank's kernels execute.
// Called by cuda programs for callers' tensors that lie in a new way.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/kernels/worker_table.hpp"
#include "backends/cuda/tables/gemm_table.hpp"
#include "backends/cuda/tables/stream_work.hpp"
#include "lower/tensor_cores.hpp"
#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// First element of one rank's buffer, as my device addresses it.
struct Base {
  std::byte* data = nullptr;  ///< may be relative (kernels/bases.hpp)
  int64_t ld = 0;             ///< elements
  int part = 0;               ///< of a caller's tensor that peers address: where theirs lies (ReachableMemory)

  bool operator==(const Base&) const = default;
};

/// Where everything lies, from one rank's point of view.
struct Addresses {
  std::vector<Base> bases{};  ///< [rank * number of buffers + buffer]
  /// The counter of a signal.
  std::function<uint64_t*(const Signal&)> signal{};
  uint64_t* progress = nullptr;   ///< two zeroed counters for each of my lanes, twice
  Doorbell* doorbells = nullptr;  ///< zeroed, most_stream_work of them
};

/// A WorkerTable that is being made.
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

/// A task by the number that the device's reports use.
struct TaskName {
  int lane = 0;  ///< among the lanes that the tables were made of
  int64_t task = 0;
  bool again = false;  ///< another record has the task's times: this one is for a doorbell of its lane's kernel, pads a
                       ///< pair, or is a later part of K
  bool sum = false;    ///< of the task's addends: its own times are those of the record before
};

/// Everything that one rank does in a call.
struct RankTables {
  HostTable gemm{};
  GemmBodyKind kind{};
  uint32_t gemm_ctas = 0;
  ClusterShape cluster{};  ///< of the CTAs that take the tiles
  HostWorkerTable workers{};
  std::vector<StreamWork> works{};  ///< lane by lane
  std::vector<StreamUse> streams{};
  bool lanes_apart = false;       ///< data lanes are works: the kernel of the call has tiles and sync-only lanes only
  bool stream_ordered = false;    ///< the one work, a GEMM, stands between two kernels (LaneRecord::after)
  Preamble first{};               ///< of the kernel before it: what the rank says as it begins
  Preamble preamble{};            ///< of the kernel after it
  std::vector<TaskName> names{};  ///< by TileRecord::task and OpRecord::task
};

/// Why `cluster_split_k` CTAs cannot make a tile of the plan together (tile shape, columns of A), or nothing.
[[nodiscard]] std::optional<std::string> refuses_cluster_split_k(const Plan& plan);

/// The most CTAs that share the K of a tile of the plan's first kernel.
[[nodiscard]] int most_split_k(const Plan& plan);
/// How the plan's first product is made.
[[nodiscard]] GemmParams gemm_params_of(const Plan& plan);
/// The kernel of the plan's tiles, as if they completed no sums.
[[nodiscard]] GemmBodyKind kind_of(const Plan& plan);

/// What a rank may use of its device.
struct Room {
  int sms = 0;          ///< CTAs that may be resident at once
  bool streams = true;  ///< streams may wait for doorbells; not where ranks share a device, and so its queues
  bool traced = false;  ///< all that streams do has a doorbell, so that its times can be taken
};

/// Change places within each wave of tiles, so that every CTA (cluster) completes about as many sums as the others:
/// where own tiles come with those of peers, the same CTAs would have one in every turn. Unless too many could no
/// longer come during their CTA's next tile, as that one is its first for another peer and waits. NOTE: not from turn
/// to turn, so that each CTA's tiles stay in the plan's order, as what may be waited for rests on that (TileNeeds).
void spread_sums(RankTables& tables);

/// Leave out the waits of tiles and steps that repeat what earlier ones of the same CTA waited for: a CTA takes its
/// tiles, and its steps of a lane, in order, and signals only grow. One keeps all of its waits or none, and a tile its
/// part waits.
void drop_repeated_waits(RankTables& tables);

/// Whether kernels can take tables with relative addresses: maps of these go with a launch, and no step has more
/// records than are at hand.
[[nodiscard]] bool serves_any_address(const RankTables& tables);

/// Lanes and CTAs of the kernel before a stream-ordered call of the library, or of the only one; or of that `after` the
/// call.
[[nodiscard]] WorkerTable counts_of(const HostWorkerTable& workers, bool after);

/// `plan`: lowered, with the lanes of `rank` only. `totals`: signal_totals of the whole plan. Throws
/// Error(invalid_input) where lanes have no workers, or more CTAs that wait for each other than there are SMs.
[[nodiscard]] RankTables make_tables(const Plan& plan, int rank, const Addresses& addresses,
                                     const std::vector<int64_t>& totals, const Room& room);

}  // namespace tilewire::cuda
