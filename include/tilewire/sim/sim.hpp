// The simulator: executes a plan on a virtual clock, on a machine described by numbers (machine.hpp).
// Called by `tilewire sim`, the tuner's model, the studies and the tests.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tilewire/plan.hpp"
#include "tilewire/sim/machine.hpp"
#include "tilewire/trace.hpp"

namespace tilewire {

/// Load of one link. Devices are numbered from 0; a `from` or `to` that is at least the number of devices is a switch.
struct LinkLoad {
  int from = 0;
  int to = 0;
  int64_t bytes = 0;
  double busy = 0;  ///< share of the total time, 0 to 1

  bool operator==(const LinkLoad&) const = default;
};

/// Load of one device's memory.
struct MemoryLoad {
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
  int64_t communication_read_bytes = 0;  ///< part of read_bytes: copies, sums, fills, and accesses by other devices
  int64_t communication_written_bytes = 0;
  double busy = 0;  ///< share of the total time, 0 to 1

  bool operator==(const MemoryLoad&) const = default;
};

/// Bytes of one device's memory in one interval of time: `compute` of tiles, `communication` of everything else.
struct IntervalLoad {
  double compute_read_bytes = 0;
  double compute_written_bytes = 0;
  double communication_read_bytes = 0;
  double communication_written_bytes = 0;

  bool operator==(const IntervalLoad&) const = default;
};

/// The device whose memory traffic the simulation records over time.
struct TrafficRequest {
  double interval_ns = 0;  ///< length of an interval; 0 = record nothing
  int device = 0;
};

/// One simulated call.
struct Simulation {
  double total_ns = 0;                  ///< until the last rank's call has ended
  std::vector<double> rank_ns{};        ///< by rank
  std::vector<LinkLoad> links{};        ///< links that carried at least one byte
  std::vector<MemoryLoad> memory{};     ///< by device
  std::vector<double> units_busy{};     ///< by device: share of the total time in which compute units have GEMM tiles
  std::vector<IntervalLoad> traffic{};  ///< by interval, if requested; sums up to `memory` of that device
  int64_t events = 0;                   ///< steps of the clock
  int64_t most_tracked = 0;             ///< most wavefronts in one device's Tracker at once, if it has one
  int64_t not_tracked = 0;              ///< wavefronts that a Tracker had no room for; their updates are counted, too
  Trace trace{};                        ///< whole nanoseconds

  bool operator==(const Simulation&) const = default;
};

/// Execute one call of `plan`; rank r runs on device r. Deterministic. Throws Error(invalid_input) if the machine has
/// fewer devices than the plan has ranks, or if traffic is requested of a machine without a memory controller;
/// Error(refused_plan) with the checker's text if the plan deadlocks.
[[nodiscard]] Simulation simulate(const Plan& plan, const Machine& machine, const TrafficRequest& traffic = {});

/// The team of ranks on that machine, with links, engines and compute units. Schedules treat them as GPUs.
[[nodiscard]] Team team_of(const Machine& machine, int num_ranks);

/// Time in ns of an exchange in which each of `num_ranks` ranks sends `bytes` in total, in equal parts to all peers, at
/// the peak of the links. Nothing for topologies whose devices forward messages: there the time depends on the routes.
[[nodiscard]] std::optional<double> exchange_ns(const Machine& machine, int num_ranks, int64_t bytes);

/// The algorithm of a collective.
enum class CollectiveAlgorithm { ring, direct, halving_doubling };

/// A plan of one collective alone, made of copies. `bytes` is each rank's input (all_gather: its shard). On a torus the
/// collective runs along one dimension after the other; a gather runs in reverse order of dimensions. Chunks have equal
/// size, rounded up to two bytes. Throws Error(invalid_input) for halving_doubling on a number of ranks that is not a
/// power of two.
[[nodiscard]] Plan collective_plan(Collective collective, CollectiveAlgorithm algorithm, int64_t bytes,
                                   const Machine& machine);

}  // namespace tilewire
