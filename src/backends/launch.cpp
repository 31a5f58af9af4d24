// Starts ranks as child processes or as threads of this process.
// Called by the command line, tests and benchmarks through tilewire::launch.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/host/group.hpp"
#include "backends/host/thread.hpp"
#include "backends/host/wire.hpp"
#include "core/caught.hpp"
#include "core/descriptor.hpp"
#include "core/failing_writes.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

using RankBody = std::function<void(Group&)>;

/// How a rank ended.
struct Ending {
  std::optional<Error> error;
  int signal = 0;
  std::optional<int> exit_code{};  ///< of a process that ended inside its function
  int64_t at_ns = 0;               ///< time at which the end was noticed
  bool by_us = false;              ///< killed by this process because other ranks had failed
};

/// Run `body` in this thread. If it fails, report that to the peers.
std::optional<Error> run_rank(int rank, const std::function<std::unique_ptr<Group>()>& join_rank,
                              const RankBody& body) {
  std::unique_ptr<Group> group;
  try {
    group = join_rank();
    body(*group);
    return std::nullopt;
  } catch (const Error& error) {
    if (group) group->fail_with(error);
    return error;
  } catch (...) {
    const Error error = caught_error();
    if (group) group->fail_with(error);
    // Add the rank to the text of a foreign exception.
    return Error(error.kind(), fmt::format("rank {}: {}", rank, error.what()));
  }
}

/// Flush the buffers of iostreams and stdio.
void flush_streams() {
  const auto flush = [](auto& stream) {
    try {
      stream.flush();
    } catch (const std::ios_base::failure&) {
      // The owner of the stream has enabled exceptions, and gets one at its next write.
      return;
    }
  };
  for (std::ostream* stream : {&std::cout, &std::clog, &std::cerr}) flush(*stream);
  for (std::wostream* stream : {&std::wcout, &std::wclog, &std::wcerr}) flush(*stream);
  std::fflush(nullptr);
}

/// Whether a process ended without a report.
bool died(const Ending& ending) { return ending.signal != 0 || ending.exit_code; }

/// Severity of an ending: 5 failed by itself, 4 died, 3 timed out, 2 lost a peer, 1 killed by this process, 0
/// succeeded.
int badness(const Ending& ending) {
  if (died(ending)) return ending.by_us ? 1 : 4;
  if (!ending.error) return 0;
  if (ending.error->kind() == ErrorKind::rank_lost) return 2;
  return ending.error->kind() == ErrorKind::timeout ? 3 : 5;
}

/// Throw the most severe ending as an Error: the lowest rank's, or among dead processes the first one's.
void throw_worst(const std::vector<Ending>& endings) {
  size_t worst = 0;
  for (size_t rank = 1; rank < endings.size(); ++rank) {
    const int more = badness(endings[rank]) - badness(endings[worst]);
    const bool sooner = died(endings[rank]) && endings[rank].at_ns < endings[worst].at_ns;
    if (more > 0 || (more == 0 && sooner)) worst = rank;
  }
  const Ending& ending = endings[worst];
  if (ending.error) throw *ending.error;
  if (ending.exit_code) {
    fail(ErrorKind::rank_lost, "rank {} ended before its function returned, with exit code {}", worst,
         *ending.exit_code);
  }
  if (ending.signal == 0) return;
  fail(ErrorKind::rank_lost, "rank {} was killed by signal {} ({})", worst, ending.signal, strsignal(ending.signal));
}

JoinOptions join_options_of(const LaunchOptions& options, int rank, int num_ranks, const std::string& job) {
  return {.rank = rank,
          .num_ranks = num_ranks,
          .job = job,
          .arena_bytes = options.arena_bytes,
          .timeout_s = options.timeout_s,
          .order = options.order,
          .sms = options.sms};
}

void launch_threads(int num_ranks, const LaunchOptions& options, const RankBody& body) {
  const Backend& backend = find_backend(options.backend);
  const std::shared_ptr<host::Segment> segment = host::Segment::create(num_ranks, options.arena_bytes);
  std::vector<Ending> endings(num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto live = [&, rank] {
      const JoinOptions join_options = join_options_of(options, rank, num_ranks, "threads");
      const auto join_rank = [&] {
        try {
          host::Membership membership{segment, Descriptor()};
          return backend.make_group(std::make_unique<host::HostGroup>(std::move(membership), join_options, false),
                                    join_options);
        } catch (...) {
          const Error error = caught_error();
          segment->mark_broken({rank, error.kind(), fmt::format("rank {} failed: {}", rank, error.what())});
          throw;
        }
      };
      endings[rank].error = run_rank(rank, join_rank, body);
    };
    try {
      threads.push_back(host::start_thread(live));
    } catch (const Error& error) {
      endings[rank].error = error;
      segment->mark_broken({rank, error.kind(), fmt::format("rank {} failed: {}", rank, error.what())});
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  throw_worst(endings);
}

/// A rank as a child process, and the pipe for its report.
struct Child {
  pid_t pid = 0;
  Descriptor pipe;  ///< closed when the report is complete
  std::string report;
  bool ended = false;
};

/// The report of a rank whose function has returned.
constexpr std::string_view kDone = "done";

std::string encode(const Error& error) {
  nlohmann::json object = {{"kind", error.kind()}, {"text", error.what()}};
  if (const auto& wait = error.wait()) {
    object["wait"] = {wait->op, wait->rank, wait->lane, wait->task, wait->signal, wait->wanted, wait->seen};
  }
  return json_text(object);
}

/// Nothing if the report is incomplete.
std::optional<Error> decode(const std::string& report) {
  nlohmann::json object;
  try {
    object = parse_json(report, "a report");
  } catch (const Error&) {
    return std::nullopt;
  }
  const auto kind = object["kind"].get<ErrorKind>();
  const std::string text = object["text"];
  if (!object.contains("wait")) return Error(kind, text);
  const auto& wait = object["wait"];
  return Error(kind, text, WaitReport{wait[0], wait[1], wait[2], wait[3], wait[4], wait[5], wait[6]});
}

/// The main function of a child process.
[[noreturn]] void be_rank(const std::string& backend, const JoinOptions& options, const RankBody& body, int pipe) {
  const pid_t rank_process = getpid();
  const auto error = run_rank(
      options.rank, [&] { return join(backend, options); }, body);
  // NOTE: a process that `body` has forked may return here, too; it must not report.
  const std::string report = getpid() != rank_process ? "" : error ? encode(*error) : std::string(kDone);
  static_cast<void>(write_all(pipe, report));
  flush_streams();
  _exit(error ? 1 : 0);
}

/// The child processes. The destructor kills those that are left.
class Children {
 public:
  explicit Children(double timeout_s) : timeout_s_(timeout_s) {}
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    kill_rest();
    for (Child& child : children_) static_cast<void>(collect(child, 0));
  }

  void start(const std::string& backend, const JoinOptions& options, const RankBody& body) {
    auto [read_end, write_end] = new_pipe(fmt::format("the report of rank {}", options.rank));
    const pid_t parent = getpid();
    const SystemCall forked = system_call([] { return fork(); });
    require_granted(forked, fmt::format("fork of rank {}", options.rank));
    if (forked.value == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // Check again: the parent may have died before prctl.
      if (getppid() != parent) _exit(1);
      read_end.reset();
      for (Child& sibling : children_) sibling.pipe.reset();
      be_rank(backend, options, body, write_end.get());
    }
    children_.push_back({static_cast<pid_t>(forked.value), std::move(read_end), {}, false});
    endings_.emplace_back();
  }

  /// Return when all processes have ended. After a reported failure the other ranks have the timeout to notice it.
  /// After a death without a report they have one second: ranks that have joined notice it at once, other ranks never
  /// would.
  std::vector<Ending> wait_all() {
    std::optional<int64_t> deadline;
    while (true) {
      const std::vector<size_t> alive = those_alive();
      if (alive.empty()) return endings_;
      const bool over = deadline && host::now_ns() >= *deadline;
      if (over) kill_rest();
      listen(alive, over ? std::nullopt : deadline);
      for (const size_t rank : alive) {
        const Ending& ending = endings_[rank];
        if (badness(ending) == 0) continue;
        const int64_t end = ending.at_ns + (children_[rank].report.empty() ? kSecond : grace_ns());
        deadline = std::min(deadline.value_or(end), end);
      }
    }
  }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;

  [[nodiscard]] int64_t grace_ns() const { return static_cast<int64_t>(std::min(timeout_s_, 1e8) * kSecond) + kSecond; }

  [[nodiscard]] std::vector<size_t> those_alive() const {
    std::vector<size_t> alive;
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      if (!children_[rank].ended) alive.push_back(rank);
    }
    return alive;
  }

  /// Wait for a moment, at most until `deadline`, and receive reports and ends of processes.
  void listen(const std::vector<size_t>& alive, std::optional<int64_t> deadline) {
    // NOTE: poll, because a process that a rank has forked keeps the pipe open after the rank's end.
    constexpr int kLook_ms = 50;
    constexpr int kLastLook_ms = 1;
    std::vector<pollfd> watched;
    bool ending = false;
    for (const size_t rank : alive) {
      watched.push_back({children_[rank].pipe.get(), POLLIN, 0});
      ending = ending || !children_[rank].pipe.valid();
    }
    int64_t most_ms = ending ? kLastLook_ms : kLook_ms;
    if (deadline) most_ms = std::clamp<int64_t>((*deadline - host::now_ns()) / 1'000'000 + 1, 0, most_ms);
    const int ready = poll(watched.data(), watched.size(), static_cast<int>(most_ms));
    for (size_t i = 0; i < alive.size(); ++i) {
      if (ready > 0 && watched[i].revents != 0) read_report(children_[alive[i]]);
      if (const auto status = collect(children_[alive[i]], WNOHANG)) judge(alive[i], *status);
    }
  }

  static void read_report(Child& child) {
    std::array<char, 4096> bytes{};
    const SystemCall got = system_call([&] { return read(child.pipe.get(), bytes.data(), bytes.size()); });
    if (got.value > 0) {
      child.report.append(bytes.data(), static_cast<size_t>(got.value));
    } else if (got.error != EAGAIN) {
      child.pipe.reset();
    }
  }

  /// Classify the end of a rank by its exit status and its report.
  void judge(size_t rank, int status) {
    Child& child = children_[rank];
    Ending& ending = endings_[rank];
    ending.at_ns = host::now_ns();
    while (child.pipe.valid() && host::readable_by(child.pipe, 0)) read_report(child);
    child.pipe.reset();
    if (WIFSIGNALED(status)) {
      ending.signal = WTERMSIG(status);
    } else if (child.report != kDone && !(ending.error = decode(child.report))) {
      ending.exit_code = WEXITSTATUS(status);
    }
  }

  /// The exit status of a child that has ended; `options` as in waitpid.
  static std::optional<int> collect(Child& child, int options) {
    if (child.ended) return std::nullopt;
    int status = 0;
    // NOTE: there is no status if the caller ignores SIGCHLD.
    const SystemCall waited = system_call([&] { return waitpid(child.pid, &status, options); });
    if (waited.value == 0) return std::nullopt;
    child.ended = true;
    return status;
  }

  void kill_rest() {
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      if (children_[rank].ended) continue;
      kill(children_[rank].pid, SIGKILL);
      endings_[rank].by_us = true;
    }
  }

  double timeout_s_;
  std::vector<Child> children_;
  std::vector<Ending> endings_;
};

void launch_processes(int num_ranks, const LaunchOptions& options, const RankBody& body) {
  const std::string job = host::unique_name("launch");
  // Flush buffers, or every child process would write their contents again.
  flush_streams();
  Children children(options.timeout_s);
  for (int rank = 0; rank < num_ranks; ++rank) {
    children.start(options.backend, join_options_of(options, rank, num_ranks, job), body);
  }
  throw_worst(children.wait_all());
}

}  // namespace

void launch(int num_ranks, const LaunchOptions& options, const std::function<void(Group&)>& body) {
  require(num_ranks >= 1 && num_ranks <= host::kMaxRanks, "{} ranks: want 1 to {} on one host", num_ranks,
          host::kMaxRanks);
  host::require_timeout(options.timeout_s);
  host::require_sms(options.sms);
  require(static_cast<bool>(body), "launch: the ranks' function is null");
  static_cast<void>(available_backend(options.backend));
  options.threads ? launch_threads(num_ranks, options, body) : launch_processes(num_ranks, options, body);
}

}  // namespace tilewire
