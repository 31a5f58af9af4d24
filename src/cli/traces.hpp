// One Chrome trace file of several calls, side by side.
// Used by bench, run and sim.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tilewire/trace.hpp"

namespace tilewire::cli {

/// A line per lane: the time, in us, that its workers were busy and waiting, all together, and from its
/// first task to the end of its last; above them overlap_of.
[[nodiscard]] std::string lanes_text(const std::string& title, const Plan& plan, const Trace& trace);

/// The share of the time in which a rank's copies, sums and other tasks besides its GEMM ran that its GEMM
/// ran too, over all ranks. NaN where there are no such tasks.
[[nodiscard]] double overlap_of(const Plan& plan, const Trace& trace);

/// Calls added one after another; in the viewer each starts at time zero and its ranks are named after it.
class TraceFile {
 public:
  void add(const std::string& title, const Plan& plan, const Trace& trace);
  void write(const std::string& path) const;
  /// What `write` writes.
  [[nodiscard]] nlohmann::json json() const;
  /// lanes_text of all calls.
  [[nodiscard]] const std::string& summary() const { return summary_; }

 private:
  nlohmann::json events_ = nlohmann::json::array();
  std::string summary_;
  int num_calls_ = 0;
  int next_process_ = 0;
};

}  // namespace tilewire::cli
