// One Chrome trace file of several calls, side by side.
// Used by bench, run and sim.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tilewire/trace.hpp"

namespace tilewire::cli {

/// One line per lane: the time in us that all of its workers together were busy and waiting, and the time from its
/// first task to the end of its last. The line before them is overlap_of.
[[nodiscard]] std::string lanes_text(const std::string& title, const Plan& plan, const Trace& trace);

/// The share of the time of a rank's copies, sums and other tasks besides its GEMM in which its GEMM runs, too, over
/// all ranks. NaN if there are no such tasks.
[[nodiscard]] double overlap_of(const Plan& plan, const Trace& trace);

/// Calls in one file. In the viewer each call starts at time zero, and its name stands before its ranks.
class TraceFile {
 public:
  void add(const std::string& title, const Plan& plan, const Trace& trace);
  void write(const std::string& path) const;
  /// The content that `write` writes.
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
