// A page with the timelines of traces: one self-contained HTML file. Any trace of tilewire's will do.
// Used by the verbs report and demo.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tilewire::cli {

/// What one worker of a lane did, or waited for. Times in us from the start of the call.
struct ReportSpan {
  int worker = 0;  ///< of the lane
  double start_us = 0;
  double us = 0;
  std::string kind{};  ///< "gemm", "copy", "reduce", "waiting" ...
  std::string task{};  ///< what a reader is told of it
};

struct ReportLane {
  std::string name{};
  int workers = 0;
  std::vector<ReportSpan> spans{};
};

struct ReportRank {
  std::string name{};
  std::vector<ReportLane> lanes{};
};

/// A post of a task on one rank that ended a wait on another one. `from` and `to` are (rank, lane, worker).
struct ReportArrow {
  std::vector<int> from{};
  double from_us = 0;
  std::vector<int> to{};
  double to_us = 0;
};

/// One traced call.
struct ReportCall {
  std::string title{};
  double us = 0;
  double gemm_us = 0;    ///< per rank, the mean: some worker multiplies
  double other_us = 0;   ///< per rank, the mean: bytes move or sums are made
  double hidden_us = 0;  ///< of `other_us`, while some worker of the rank multiplies
  std::vector<ReportRank> ranks{};
  std::vector<ReportArrow> arrows{};  ///< between ranks
};

/// The calls of a Chrome trace that `--trace` wrote. `path` is for errors. Throws Error(invalid_input) where it is no
/// such trace, or has no tasks.
[[nodiscard]] std::vector<ReportCall> report_calls(const std::string& path, const nlohmann::json& trace);

/// A line for each call: time, and how much of its communication is hidden.
[[nodiscard]] std::string report_table(const std::vector<ReportCall>& calls);

/// The page. `summary` is plain text, which comes first; it may be empty.
[[nodiscard]] std::string report_page(const std::string& summary, const std::vector<ReportCall>& calls);

}  // namespace tilewire::cli
