// Executes a plan on a virtual clock, on a machine described by numbers (machine.hpp): how long it would take there.
// Called by `tilewire sim`, the tests, and whoever chooses schedules for machines that are not at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tilewire/plan.hpp"
#include "tilewire/sim/machine.hpp"
#include "tilewire/trace.hpp"

namespace tilewire {

/// What one link carried. Devices are numbered from 0; `from` or `to` at or above the number of devices is a switch.
struct LinkLoad {
  int from = 0;
  int to = 0;
  int64_t bytes = 0;
  double busy = 0;  ///< share of the total time, 0 to 1

  bool operator==(const LinkLoad&) const = default;
};

/// What one device's memory moved.
struct MemoryLoad {
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
  int64_t communication_read_bytes = 0;  ///< of these, by copies, sums, fills and others' stores
  int64_t communication_written_bytes = 0;
  double busy = 0;  ///< share of the total time, 0 to 1

  bool operator==(const MemoryLoad&) const = default;
};

/// Bytes that one device's memory moved in one interval of time, by whom as in MemoryLoad: tiles, or all else.
struct IntervalLoad {
  double compute_read_bytes = 0;
  double compute_written_bytes = 0;
  double communication_read_bytes = 0;
  double communication_written_bytes = 0;

  bool operator==(const IntervalLoad&) const = default;
};

/// Whose memory to note over time.
struct TrafficRequest {
  double interval_ns = 0;  ///< 0: nobody's
  int device = 0;
};

/// One simulated call.
struct Simulation {
  double total_ns = 0;               ///< until the last rank has ended
  std::vector<double> rank_ns{};     ///< by rank
  std::vector<LinkLoad> links{};     ///< those that carried anything
  std::vector<MemoryLoad> memory{};  ///< by device
  std::vector<double> units_busy{};  ///< by device: share of the total time in which compute units have tiles of GEMMs
  std::vector<IntervalLoad> traffic{};  ///< where it was asked for; in all as much as `memory` of that device
  int64_t events = 0;                   ///< that the clock stopped for
  int64_t most_tracked = 0;             ///< wavefronts that one device's tracker held at once, where it has one
  int64_t not_tracked = 0;              ///< wavefronts for which a tracker had no room; they were counted all the same
  Trace trace{};                        ///< whole nanoseconds

  bool operator==(const Simulation&) const = default;
};

/// Execute one call of `plan`; rank r runs on device r. Deterministic. Throws Error(invalid_input) where the machine
/// has fewer devices than the plan has ranks, or where traffic is asked for of a machine without a memory controller,
/// Error(refused_plan) in the checker's words where the plan comes to a halt.
[[nodiscard]] Simulation simulate(const Plan& plan, const Machine& machine, const TrafficRequest& traffic = {});

/// The ranks as a team on that machine: links, engines and compute units, so that schedules choose as they do for GPUs.
[[nodiscard]] Team team_of(const Machine& machine, int num_ranks);

/// ns that an exchange takes in which each of `num_ranks` ranks sends `bytes` in all, as much to each other rank, at
/// the peak of the links. Nothing where devices pass on what is for others: there, who sends what to whom can be
/// chosen.
[[nodiscard]] std::optional<double> exchange_ns(const Machine& machine, int num_ranks, int64_t bytes);

/// How a collective is done.
enum class CollectiveAlgorithm { ring, direct, halving_doubling };

/// A plan of one collective alone, by copies: `bytes` is what each rank brings (all_gather: its shard). On a torus the
/// collective is done along one dimension after the other, what is gathered from the last one back. Chunks are of equal
/// size, rounded up to two bytes. Throws Error(invalid_input) where halving_doubling meets a number of ranks that is no
/// power of two.
[[nodiscard]] Plan collective_plan(Collective collective, CollectiveAlgorithm algorithm, int64_t bytes,
                                   const Machine& machine);

}  // namespace tilewire
