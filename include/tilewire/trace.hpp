// A trace: the time of every task of a call, in the same form from every backend.
// Recorded by backends on request; written as Chrome trace JSON and summarised by src/trace.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// Times of one task, on one clock of all ranks, in nanoseconds.
struct TraceEvent {
  int lane = 0;    ///< index in Plan::lanes
  int worker = 0;  ///< index in the lane; a worker does one task at a time
  int64_t task = 0;
  int64_t taken_ns = 0;  ///< a worker took the task
  int64_t start_ns = 0;  ///< its waits were satisfied
  int64_t end_ns = 0;    ///< it has posted
  /// Of a tile with addends: when it began to wait for them, and when they had arrived; 0 = no addends, or not
  /// recorded.
  int64_t sum_taken_ns = 0;
  int64_t sum_ns = 0;

  bool operator==(const TraceEvent&) const = default;
};

/// All ranks' events of one call, sorted by lane, then by time.
struct Trace {
  std::vector<TraceEvent> events{};

  bool operator==(const Trace&) const = default;
};

/// Busy and waiting time of one lane.
struct LaneSummary {
  int lane = 0;
  int64_t busy_ns = 0;     ///< summed over all workers
  int64_t waiting_ns = 0;  ///< summed over all workers
  int64_t span_ns = 0;     ///< from the first taken_ns to the last end_ns

  bool operator==(const LaneSummary&) const = default;
};

[[nodiscard]] std::vector<LaneSummary> summarize(const Plan& plan, const Trace& trace);

/// Chrome trace JSON for ui.perfetto.dev: one process per rank, one row per worker of a lane. Arrows lead from the post
/// that completed a wait to the waiting task.
void write_chrome_trace(std::ostream& out, const Plan& plan, const Trace& trace);

/// Overlap efficiency (Flux, eq. 1-2): 1 - (total - gemm) / (sequential - gemm). 0 = nothing hidden, 1 = everything.
/// NaN if `sequential` is not longer than `gemm`.
[[nodiscard]] double overlap_efficiency(double total_us, double gemm_us, double sequential_us);

}  // namespace tilewire
