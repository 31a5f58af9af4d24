// Ranks as processes that a test kills.
// Used by the tests of faults.
#include "ranks/job.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "backends/host/slot.hpp"

namespace tilewire::testing {
namespace {

using host::now_ns;

constexpr int64_t kMillisecond = 1'000'000;

std::string encode(const Report& r) {
  return nlohmann::json{r.rank,        r.running,     static_cast<int>(r.kind),
                        r.text,        r.has_wait,    r.wait.op,
                        r.wait.rank,   r.wait.lane,   r.wait.task,
                        r.wait.signal, r.wait.wanted, r.wait.seen,
                        r.at_ns}
             .dump() +
         "\n";
}

Report decode(const std::string& line) {
  const auto json = nlohmann::json::parse(line);
  return {json[0], json[1], static_cast<ErrorKind>(json[2].get<int>()),
          json[3], json[4], {json[5], json[6], json[7], json[8], json[9], json[10], json[11]},
          json[12]};
}

[[noreturn]] void be_rank(int rank, const std::function<void(int, const Say&)>& live, int pipe) {
  const auto say = [&](const Report& report) {
    const std::string line = encode(report);
    if (write(pipe, line.data(), line.size()) < 0) _exit(2);
  };
  try {
    live(rank, say);
  } catch (const Error& error) {
    say(report_of(rank, error));
  }
  _exit(0);
}

}  // namespace

Report report_of(int rank, const Error& error) {
  return {.rank = rank,
          .kind = error.kind(),
          .text = error.what(),
          .has_wait = error.wait().has_value(),
          .wait = error.wait().value_or(WaitReport{}),
          .at_ns = now_ns()};
}

Job::Job(int num_ranks, std::function<void(int rank, const Say& say)> live, bool replaceable) : live_(std::move(live)) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("pipe");
  read_end_ = ends[0];
  write_end_ = ends[1];
  for (int rank = 0; rank < num_ranks; ++rank) pids_.push_back(start(rank));
  if (!replaceable) close(std::exchange(write_end_, -1));
}

Job::~Job() {
  for (const pid_t pid : pids_) {
    if (waitpid(pid, nullptr, WNOHANG) != 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  close(read_end_);
  if (write_end_ >= 0) close(write_end_);
}

pid_t Job::start(int rank) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close(read_end_);
  be_rank(rank, live_, write_end_);
}

void Job::signal_rank(int rank, int signal) const { kill(pids_[rank], signal); }

void Job::replace(int rank) {
  waitpid(pids_[rank], nullptr, 0);
  pids_[rank] = start(rank);
}

std::optional<Report> Job::next(int64_t deadline_ns) {
  while (true) {
    if (const size_t end = text_.find('\n'); end != text_.npos) {
      const Report report = decode(text_.substr(0, end));
      text_.erase(0, end + 1);
      return report;
    }
    pollfd watched{read_end_, POLLIN, 0};
    const int64_t left_ms = (deadline_ns - now_ns()) / kMillisecond;
    if (left_ms <= 0 || poll(&watched, 1, static_cast<int>(left_ms)) <= 0) return std::nullopt;
    std::array<char, 4096> bytes{};
    const ssize_t size = read(read_end_, bytes.data(), bytes.size());
    if (size <= 0) return std::nullopt;
    text_.append(bytes.data(), static_cast<size_t>(size));
  }
}

bool Job::all_running(int num_ranks) {
  for (int count = 0; count < num_ranks; ++count) {
    const auto report = next(now_ns() + 20'000 * kMillisecond);
    if (!report || !report->running) {
      ADD_FAILURE() << (report ? report->text : "nothing was reported");
      return false;
    }
  }
  return true;
}

}  // namespace tilewire::testing
