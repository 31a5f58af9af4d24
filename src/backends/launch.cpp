// Ranks started by this process: as child processes, or as its threads.
// Called by the command line, tests and benchmarks through tilewire::launch.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/host/group.hpp"
#include "backends/host/thread.hpp"
#include "backends/host/wire.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire {
namespace {

using Body = std::function<void(Group&)>;

/// How a rank ended.
struct Ending {
  std::optional<Error> error;
  int signal = 0;
  std::optional<int> exit_code{};  ///< of a process that ended inside of its function
  int64_t at_ns = 0;               ///< when it was known
  bool by_us = false;              ///< killed because others had failed
};

/// Run `body` in this thread, and tell the peers if it fails.
std::optional<Error> run_rank(int rank, const std::function<std::unique_ptr<Group>()>& join_rank, const Body& body) {
  std::unique_ptr<Group> group;
  std::optional<Error> error;
  bool foreign = false;
  try {
    group = join_rank();
    body(*group);
  } catch (const Error& caught) {
    error = caught;
  } catch (const std::exception& caught) {
    error = Error(ErrorKind::internal, caught.what());
    foreign = true;
  } catch (...) {
    error = Error(ErrorKind::internal, "an exception that is not a std::exception");
    foreign = true;
  }
  if (error && group) group->fail_with(*error);
  // What threw it knows nothing of ranks.
  if (foreign) error = Error(error->kind(), fmt::format("rank {}: {}", rank, error->what()));
  return error;
}

/// Whether a process ended without a word.
bool died(const Ending& ending) { return ending.signal != 0 || ending.exit_code; }

/// How bad an ending is: failed by itself, died, waited in vain, lost a peer, killed by us; 0 = fine.
int badness(const Ending& ending) {
  if (died(ending)) return ending.by_us ? 1 : 4;
  if (!ending.error) return 0;
  if (ending.error->kind() == ErrorKind::rank_lost) return 2;
  return ending.error->kind() == ErrorKind::timeout ? 3 : 5;
}

/// The worst ending as an Error: of several the lowest rank's, of those that died the first.
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

void launch_threads(int num_ranks, const LaunchOptions& options, const Body& body) {
  const Backend& backend = find_backend(options.backend);
  const std::shared_ptr<host::Segment> segment = host::Segment::create(num_ranks, options.arena_bytes);
  std::vector<Ending> endings(num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto live = [&, rank] {
      const JoinOptions join_options{rank, num_ranks, "threads", options.arena_bytes, options.timeout_s};
      const auto join_rank = [&] {
        host::Membership membership{segment, Descriptor()};
        return backend.make_group(std::make_unique<host::HostGroup>(std::move(membership), join_options, false),
                                  join_options);
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

/// A rank as a child process, and the pipe through which it says how it ended.
struct Child {
  pid_t pid = 0;
  Descriptor pipe;
  std::string report;
  bool ended = false;
};

/// The report of a rank whose function has returned.
constexpr std::string_view kDone = "done";

std::string encode(const Error& error) {
  nlohmann::json json = {{"kind", error.kind()}, {"text", error.what()}};
  if (const auto& wait = error.wait()) {
    json["wait"] = {wait->op, wait->rank, wait->lane, wait->task, wait->signal, wait->wanted, wait->seen};
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Error decode(const std::string& report) {
  const auto json = nlohmann::json::parse(report);
  const auto kind = json["kind"].get<ErrorKind>();
  const std::string text = json["text"];
  if (!json.contains("wait")) return Error(kind, text);
  const auto& wait = json["wait"];
  return Error(kind, text, WaitReport{wait[0], wait[1], wait[2], wait[3], wait[4], wait[5], wait[6]});
}

/// The life of a child process.
[[noreturn]] void be_rank(const std::string& backend, const JoinOptions& options, const Body& body, int pipe) {
  const auto error = run_rank(
      options.rank, [&] { return join(backend, options); }, body);
  const std::string report = error ? encode(*error) : std::string(kDone);
  for (size_t sent = 0; sent < report.size();) {
    const ssize_t size = write(pipe, report.data() + sent, report.size() - sent);
    if (size <= 0) break;
    sent += static_cast<size_t>(size);
  }
  std::fflush(nullptr);
  _exit(error ? 1 : 0);
}

/// Child processes; none outlives it.
class Children {
 public:
  explicit Children(double timeout_s) : timeout_s_(timeout_s) {}
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    kill_rest();
    for (Child& child : children_) collect(child);
  }

  void start(const std::string& backend, const JoinOptions& options, const Body& body) {
    std::array<int, 2> ends{};
    ensure(pipe2(ends.data(), O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno));
    Descriptor read_end(ends[0]);
    const Descriptor write_end(ends[1]);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    ensure(pid >= 0, "fork: {}", std::strerror(errno));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // The parent may have died before the line above.
      if (getppid() != parent) _exit(1);
      be_rank(backend, options, body, write_end.get());
    }
    children_.push_back({pid, std::move(read_end), {}, false});
    endings_.emplace_back();
  }

  /// Returns when all have ended. When one has failed, the others have the timeout left to notice. When one has died
  /// without a word, they have a second: a peer that has joined notices sooner, one that has not never would.
  std::vector<Ending> wait_all() {
    std::optional<int64_t> deadline;
    while (true) {
      std::vector<pollfd> watched;
      std::vector<size_t> who;
      for (size_t rank = 0; rank < children_.size(); ++rank) {
        if (children_[rank].ended) continue;
        watched.push_back({children_[rank].pipe.get(), POLLIN, 0});
        who.push_back(rank);
      }
      if (who.empty()) return endings_;
      const int64_t left = deadline ? std::max<int64_t>(0, *deadline - host::now_ns()) / 1'000'000 : -1;
      const int ready = poll(watched.data(), watched.size(), static_cast<int>(std::min<int64_t>(left, 3'600'000)));
      if (ready == 0 && deadline && host::now_ns() >= *deadline - 1'000'000) kill_rest();
      for (size_t i = 0; i < who.size() && ready > 0; ++i) {
        if (watched[i].revents != 0) listen_to(who[i]);
        const Ending& ending = endings_[who[i]];
        if (badness(ending) == 0) continue;
        const int64_t end = ending.at_ns + (children_[who[i]].report.empty() ? kSecond : grace_ns());
        deadline = std::min(deadline.value_or(end), end);
      }
    }
  }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;

  [[nodiscard]] int64_t grace_ns() const { return static_cast<int64_t>(std::min(timeout_s_, 1e8) * kSecond) + kSecond; }

  void listen_to(size_t rank) {
    std::array<char, 4096> bytes{};
    Child& child = children_[rank];
    const ssize_t size = read(child.pipe.get(), bytes.data(), bytes.size());
    if (size > 0) {
      child.report.append(bytes.data(), static_cast<size_t>(size));
      return;
    }
    const int status = collect(child);
    endings_[rank].at_ns = host::now_ns();
    if (WIFSIGNALED(status)) {
      endings_[rank].signal = WTERMSIG(status);
    } else if (child.report.empty()) {
      endings_[rank].exit_code = WEXITSTATUS(status);
    } else if (child.report != kDone) {
      endings_[rank].error = decode(child.report);
    }
  }

  static int collect(Child& child) {
    if (child.ended) return 0;
    int status = 0;
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
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

void launch_processes(int num_ranks, const LaunchOptions& options, const Body& body) {
  const std::string job = host::unique_name("launch");
  // What is still in the buffers of stdio would be written once by every child.
  std::fflush(nullptr);
  Children children(options.timeout_s);
  for (int rank = 0; rank < num_ranks; ++rank) {
    children.start(options.backend, {rank, num_ranks, job, options.arena_bytes, options.timeout_s}, body);
  }
  throw_worst(children.wait_all());
}

}  // namespace

void launch(int num_ranks, const LaunchOptions& options, const std::function<void(Group&)>& body) {
  require(num_ranks >= 1 && num_ranks <= host::kMaxRanks, "{} ranks: want 1 to {} on one host", num_ranks,
          host::kMaxRanks);
  host::require_timeout(options.timeout_s);
  require(static_cast<bool>(body), "launch: the ranks' function is null");
  static_cast<void>(available_backend(options.backend));
  options.threads ? launch_threads(num_ranks, options, body) : launch_processes(num_ranks, options, body);
}

}  // namespace tilewire
