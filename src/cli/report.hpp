// A page with the timelines of traces: one self-contained HTML file, from any trace of tilewire.
// Used by the verbs report and demo.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tilewire::cli {

/// A task of a lane's worker, or a wait. Times in us from the start of the call.
struct ReportSpan {
  int worker = 0;  ///< of the lane
  double start_us = 0;
  double us = 0;
  std::string kind{};  ///< "gemm", "copy", "reduce", "waiting" ...
  std::string task{};  ///< description for the reader
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

/// A post on one rank that ended a wait on another rank. `from` and `to` are (rank, lane, worker).
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
  double gemm_us = 0;    ///< time in which a worker multiplies, mean over ranks
  double other_us = 0;   ///< time in which bytes move or sums are made, mean over ranks
  double hidden_us = 0;  ///< the part of `other_us` in which a worker of the rank multiplies
  std::vector<ReportRank> ranks{};
  std::vector<ReportArrow> arrows{};  ///< between ranks
};

/// The calls of a Chrome trace that `--trace` has written. `path` is for errors. Throws Error(invalid_input) if it is
/// no such trace, or has no tasks.
[[nodiscard]] std::vector<ReportCall> report_calls(const std::string& path, const nlohmann::json& trace);

/// One line for each call: its time, and how much of its communication is hidden.
[[nodiscard]] std::string report_table(const std::vector<ReportCall>& calls);

/// The page. `summary` is plain text at the top; it may be empty.
[[nodiscard]] std::string report_page(const std::string& summary, const std::vector<ReportCall>& calls);

}  // namespace tilewire::cli
