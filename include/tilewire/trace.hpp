// What happened in a call, and when: the same record from every backend.
// Filled by backends when asked; written as Chrome trace JSON and summarised by src/trace.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// One task's life on one clock that all ranks share. Nanoseconds.
struct TraceEvent {
  int lane = 0;    ///< index in Plan::lanes
  int worker = 0;  ///< of the lane; does one thing at a time
  int64_t task = 0;
  int64_t taken_ns = 0;  ///< a worker took it
  int64_t start_ns = 0;  ///< its waits were satisfied
  int64_t end_ns = 0;    ///< it had posted
  /// Of a tile with addends: when it began to wait for them, and when they were there; 0 = none, or not told.
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
  int64_t busy_ns = 0;     ///< all workers together
  int64_t waiting_ns = 0;  ///< all workers together
  int64_t span_ns = 0;     ///< first taken to last end

  bool operator==(const LaneSummary&) const = default;
};

[[nodiscard]] std::vector<LaneSummary> summarize(const Plan& plan, const Trace& trace);

/// Chrome trace JSON for ui.perfetto.dev: one process per rank, one row per lane worker, arrows from
/// the post that completed a wait to the waiter.
void write_chrome_trace(std::ostream& out, const Plan& plan, const Trace& trace);

/// Flux, eq. 1-2: 1 - (total - gemm) / (sequential - gemm). 0 = nothing hidden, 1 = all. NaN where
/// `sequential` is no longer than `gemm`: there is nothing to hide.
[[nodiscard]] double overlap_efficiency(double total_us, double gemm_us, double sequential_us);

}  // namespace tilewire
