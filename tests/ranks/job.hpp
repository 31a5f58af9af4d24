// Ranks as processes that a test kills, and their reports through a pipe.
// Used by the tests of faults.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/error.hpp"

namespace tilewire::testing {

/// A report of a rank: it runs, or how it ended.
struct Report {
  int rank = 0;
  bool running = false;
  ErrorKind kind = ErrorKind::internal;
  std::string text{};
  bool has_wait = false;
  WaitReport wait{};
  int64_t at_ns = 0;
};

/// The report of an Error, at the present time.
[[nodiscard]] Report report_of(int rank, const Error& error);

/// Sends a report; a rank may call it any number of times.
using Say = std::function<void(const Report&)>;

/// Processes that end with this object at the latest.
class Job {
 public:
  /// Start a process for each rank. It runs `live`; at an Error it reports and ends.
  Job(int num_ranks, std::function<void(int rank, const Say& say)> live, bool replaceable = false);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  void signal_rank(int rank, int signal) const;
  /// Start another process for a rank that was killed, in a job that is replaceable.
  void replace(int rank);
  /// The next report. Nothing if the time is over or, unless the job is replaceable, all processes have ended.
  std::optional<Report> next(int64_t deadline_ns);
  /// Whether every rank has reported that it runs; fails the test otherwise.
  bool all_running(int num_ranks);

 private:
  pid_t start(int rank);

  std::function<void(int rank, const Say& say)> live_;
  int read_end_ = -1;
  int write_end_ = -1;
  std::vector<pid_t> pids_;
  std::string text_;
};

}  // namespace tilewire::testing
