// Rank 0's side of start-up: receives hellos, sends the shared memory, waits for confirmations, and reports errors to
// every rank.
// Called through doorkeeper.hpp.
#include "backends/host/doorkeeper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "backends/host/own_descriptors.hpp"
#include "core/caught.hpp"
#include "core/text.hpp"

namespace tilewire::host {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

/// A process that has connected to rank 0.
struct Guest {
  Descriptor socket;
  pid_t pid = 0;
  std::optional<Hello> hello;
  bool ready = false;  ///< the rank has mapped the shared memory
};

std::string in_words(uint64_t pid_namespace) {
  return pid_namespace == 0 ? "" : fmt::format(" of pid:[{}]", pid_namespace);
}

class Doorkeeper {
 public:
  /// Descriptors get numbers of at least `lowest`.
  Doorkeeper(const JoinOptions& options, Descriptor door, const Hello& mine, int lowest = kAboveStreams)
      : options_(options), door_(std::move(door)), mine_(mine), lowest_(lowest), deadline_(mine.deadline_ns) {}

  /// Hold one descriptor in reserve. It is closed to accept a connection when no other descriptor is left. Throws
  /// Error(unsupported).
  void keep_reserve() {
    reserve_ =
        granted_descriptor("a descriptor in reserve", [&] { return fcntl(door_.get(), F_DUPFD_CLOEXEC, lowest_); });
  }

  Membership receive_all() {
    while (now_ns() < deadline_ && !all_told() && !(trouble_.empty() && complete())) receive_some();
    if (trouble_.empty() && !complete()) note(ErrorKind::timeout, silence());
    if (!trouble_.empty()) refuse();
    reserve_.reset();
    open_ = false;
    std::erase_if(guests_, [](const Guest& guest) { return !guest.hello; });
    Membership membership{share_memory(), Descriptor()};
    confirm();
    for (const Guest& guest : guests_) send_verdict(guest.socket, approval());
    membership.door = std::move(door_);
    return membership;
  }

  /// For some seconds, report to every rank that connects why the job does not start.
  void tell_all(const Error& error) {
    constexpr int64_t kMost = 5000 * kMillisecond;
    note_for_all(error.kind(), error.what());
    deadline_ = std::min(deadline_, now_ns() + kMost);
    while (now_ns() < deadline_ && !all_told()) receive_some();
  }

 private:
  [[nodiscard]] bool complete() const {
    // A connection without a hello is no rank: another process of this user.
    return std::ranges::count_if(guests_, [](const Guest& guest) { return guest.hello.has_value(); }) ==
           options_.num_ranks - 1;
  }

  /// Whether all ranks have received an error that does not depend on further ranks.
  [[nodiscard]] bool all_told() const { return for_all_ && std::ssize(told_) == options_.num_ranks - 1; }

  std::unique_ptr<Segment> share_memory() {
    try {
      auto segment = Segment::create(options_.num_ranks, options_.arena_bytes);
      segment->rank(0).pid = getpid();
      for (const Guest& guest : guests_) segment->rank(guest.hello->rank).pid = guest.pid;
      for (const Guest& guest : guests_) {
        const SystemCall sent = send_verdict(guest.socket, approval(), segment->descriptor());
        // NOTE: a rank that died sends no confirmation, which is noticed later.
        if (sent.error == EPIPE || sent.error == ECONNRESET) continue;
        require_granted(sent, fmt::format("shared memory for {}", name_of(guest.hello->rank, guest.pid)));
      }
      return segment;
    } catch (...) {
      const Error error = error_of_rank(0);
      note(error.kind(), error.what());
      refuse();
    }
  }

  /// Wait until all ranks have mapped the memory.
  void confirm() {
    constexpr int64_t kLeast = 1000 * kMillisecond;
    deadline_ = std::max(deadline_, now_ns() + kLeast);
    const auto late = [](const Guest& guest) { return !guest.ready; };
    while (trouble_.empty() && std::ranges::any_of(guests_, late)) {
      if (now_ns() >= deadline_) {
        const Guest& guest = *std::ranges::find_if(guests_, late);
        note(ErrorKind::timeout, fmt::format("{} has not mapped the shared memory within {} s",
                                             name_of(guest.hello->rank, guest.pid), options_.timeout_s));
        break;
      }
      receive_some();
    }
    if (!trouble_.empty()) refuse();
  }

  void receive_some() {
    std::vector<pollfd> watched{{open_ ? door_.get() : -1, POLLIN, 0}};
    for (const Guest& guest : guests_) watched.push_back({guest.socket.get(), POLLIN, 0});
    const int64_t left_ms = (deadline_ - now_ns()) / kMillisecond + 1;
    if (poll(watched.data(), watched.size(), static_cast<int>(std::clamp<int64_t>(left_ms, 0, 3'600'000))) <= 0) return;
    try {
      for (size_t i = guests_.size(); i-- > 0;) {
        if (watched[i + 1].revents != 0 && !hear(guests_[i])) guests_.erase(guests_.begin() + static_cast<int64_t>(i));
      }
      if (watched[0].revents != 0) admit();
    } catch (...) {
      const Error error = error_of_rank(0);
      note(error.kind(), error.what());
    }
    if (for_all_) tell_present();
  }

  void admit() {
    NewDescriptor made = accept_at(door_, lowest_);
    if (!made.call.ok()) return cannot_accept(made.call);
    const Peer peer = peer_of(made.descriptor);
    if (peer.uid == geteuid()) {
      guests_.push_back({std::move(made.descriptor), peer.pid, std::nullopt});
    } else {
      // Ignore processes of other users, and send them no answer.
      ignored_ =
          fmt::format("; process {} of another user (uid {}, here {}) was ignored", peer.pid, peer.uid, geteuid());
    }
  }

  void cannot_accept(const SystemCall& call) {
    if (call.error == EAGAIN || call.error == ECONNABORTED) return;
    if (!for_all_) {
      note_for_all(ErrorKind::unsupported,
                   fmt::format("{} {}: accept: {}", name_of(0, getpid()),
                               lacks_room(call) ? "has no room for another connection" : "may not take connections",
                               call.why()));
    }
    // Report to the connected ranks, which makes room for the next connections. Without a way to accept, stop.
    if (!lacks_room(call)) deadline_ = now_ns();
    const bool made_room = reserve_.valid() || !guests_.empty();
    reserve_.reset();
    tell_present();
    guests_.clear();
    if (!made_room) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  /// Whether the connection stays open.
  bool hear(Guest& guest) {
    if (guest.hello) return hear_report(guest);
    Hello hello;
    const Received received = receive_message(guest.socket, std::as_writable_bytes(std::span(&hello, 1)));
    if (received.call.error == EAGAIN) return true;
    if (received.call.value <= 0) return false;
    if (received.call.value != sizeof(hello) || hello.protocol != kProtocol) {
      note(ErrorKind::invalid_input, fmt::format("process {} uses another version of tilewire", guest.pid));
      return true;
    }
    guest.hello = hello;
    deadline_ = std::min(deadline_, hello.deadline_ns);
    examine(guest);
    return true;
  }

  /// Receive a rank's report: it has mapped the memory, or it cannot continue (possible at any time).
  bool hear_report(Guest& guest) {
    Verdict report;
    const Received received = receive_verdict(guest.socket, report);
    if (received.call.error == EAGAIN) return true;
    const int rank = guest.hello->rank;
    if (received.call.value <= 0) {
      note(ErrorKind::rank_lost, name_of(rank, guest.pid) + " ended during start-up");
      return false;
    }
    guest.ready = report.good != 0;
    if (!guest.ready) note_for_all(report.kind, report.text.data());
    return true;
  }

  void examine(const Guest& guest) {
    const Hello& hello = *guest.hello;
    if (hello.num_ranks != mine_.num_ranks) {
      note(ErrorKind::invalid_input, fmt::format("rank 0 says {} ranks, rank {} (process {}) says {}", mine_.num_ranks,
                                                 hello.rank, guest.pid, hello.num_ranks));
    } else if (hello.rank < 0 || hello.rank >= mine_.num_ranks) {
      note(ErrorKind::invalid_input,
           fmt::format("process {} says that it is rank {} of {}", guest.pid, hello.rank, hello.num_ranks));
    } else if (hello.arena_bytes != mine_.arena_bytes) {
      note(ErrorKind::invalid_input, fmt::format("rank 0 wants an arena of {} bytes, rank {} one of {}",
                                                 mine_.arena_bytes, hello.rank, hello.arena_bytes));
    }
    if (const auto twin = pid_of_other(guest)) {
      note(ErrorKind::invalid_input,
           fmt::format("processes {} and {} both say that they are rank {}", *twin, guest.pid, hello.rank));
    }
    require_one_namespace(guest);
  }

  /// Refuse ranks of other PID namespaces: there the number of a process means another process, or none.
  void require_one_namespace(const Guest& guest) {
    const Hello& hello = *guest.hello;
    const bool both_known = hello.pid_namespace != 0 && mine_.pid_namespace != 0;
    const bool same_number = guest.pid != 0 && (hello.pid == 0 || hello.pid == guest.pid);
    if (same_number && !(both_known && hello.pid_namespace != mine_.pid_namespace)) return;
    note_for_all(
        ErrorKind::unsupported,
        fmt::format("rank {} (process {}{}) runs in another pid namespace than rank 0 (process {}{}), where "
                    "its death would go unnoticed",
                    hello.rank, hello.pid, in_words(hello.pid_namespace), getpid(), in_words(mine_.pid_namespace)));
  }

  [[nodiscard]] std::optional<pid_t> pid_of_other(const Guest& guest) const {
    if (guest.hello->rank == 0) return getpid();
    for (const Guest& other : guests_) {
      if (&other != &guest && other.hello && other.hello->rank == guest.hello->rank) return other.pid;
    }
    return std::nullopt;
  }

  /// Record an error. Receive for a moment longer, so that all ranks that connect get the error.
  void note(ErrorKind kind, const std::string& text) {
    constexpr int64_t kGrace = 300 * kMillisecond;
    if (trouble_.empty()) {
      kind_ = kind;
      deadline_ = std::min(deadline_, now_ns() + kGrace);
    }
    trouble_ += (trouble_.empty() ? "" : "; ") + text;
  }

  /// Record an error that further ranks cannot change. Report it at once to connected ranks and to each new one, until
  /// all ranks have it.
  void note_for_all(ErrorKind kind, const std::string& text) {
    const int64_t deadline = deadline_;
    note(kind, text);
    for_all_ = true;
    deadline_ = deadline;
  }

  [[nodiscard]] std::string silence() const {
    std::string silent;
    for (int rank = 1; rank < options_.num_ranks; ++rank) {
      const bool here = std::any_of(guests_.begin(), guests_.end(),
                                    [&](const Guest& guest) { return guest.hello && guest.hello->rank == rank; });
      if (!here) silent += fmt::format("{}{}", silent.empty() ? "" : ", ", rank);
    }
    const bool one = silent.find(',') == std::string::npos;
    return fmt::format("{} {} of {} {} not joined within {} s{}", one ? "rank" : "ranks", silent, options_.num_ranks,
                       one ? "has" : "have", options_.timeout_s, ignored_);
  }

  void tell(const Guest& guest) const {
    send_verdict(guest.socket, refusal(kind_, did_not_start(options_.job, trouble_)));
  }

  /// Report to all ranks that have sent a hello, and close their sockets.
  void tell_present() {
    std::erase_if(guests_, [&](const Guest& guest) {
      if (!guest.hello) return false;
      tell(guest);
      const int rank = guest.hello->rank;
      if (rank > 0 && rank < options_.num_ranks) told_.insert(rank);
      return true;
    });
  }

  [[noreturn]] void refuse() {
    for (const Guest& guest : guests_) tell(guest);
    throw Error(kind_, did_not_start(options_.job, trouble_));
  }

  const JoinOptions& options_;
  Descriptor door_;
  Hello mine_;
  int lowest_;
  Descriptor reserve_;
  bool open_ = true;  ///< ranks may still connect
  int64_t deadline_;
  std::vector<Guest> guests_;
  ErrorKind kind_ = ErrorKind::internal;
  std::string trouble_;
  bool for_all_ = false;
  std::set<int> told_;
  std::string ignored_;
};

void tell_stranger(const Descriptor& socket, const std::string& job, int num_ranks, bool ending) {
  constexpr int64_t kPatience = 100 * kMillisecond;
  if (peer_of(socket).uid != geteuid() || !readable_by(socket, now_ns() + kPatience)) return;
  if (ending) return;  // with the hello unread: the rank gets ECONNRESET and connects again
  // NOTE: read the hello first: closing a socket with unread data discards the answer.
  Hello hello;
  static_cast<void>(receive_message(socket, std::as_writable_bytes(std::span(&hello, 1))));
  send_verdict(socket, refusal(ErrorKind::invalid_input,
                               fmt::format("a job named '{}' is running already ({} ranks, rank 0 is process {})", job,
                                           num_ranks, getpid())));
}

}  // namespace

std::string name_of(int rank, pid_t pid) { return fmt::format("rank {} (process {})", rank, pid); }

Error error_of_rank(int rank) {
  const Error error = caught_error();
  return {error.kind(), fmt::format("{}: {}", name_of(rank, getpid()), error.what())};
}

std::string did_not_start(const std::string& job, const std::string& why) {
  return fmt::format("job '{}' did not start: {}", job, why);
}

std::optional<Membership> keep_door(const JoinOptions& options, const Hello& mine) {
  std::optional<Doorkeeper> keeper;
  try {
    std::optional<Descriptor> door = listen_at(options.job);
    if (!door) return std::nullopt;
    keeper.emplace(options, std::move(*door), mine);
    if (options.num_ranks > 1) keeper->keep_reserve();
  } catch (...) {
    const Error error = error_of_rank(0);
    keeper.reset();
    with_own_descriptors(-1, [&] {
      if (auto door = listen_at(options.job, 0)) Doorkeeper(options, std::move(*door), mine, 0).tell_all(error);
    });
    throw Error(error.kind(), did_not_start(options.job, error.what()));
  }
  return keeper->receive_all();
}

bool turn_away(const Descriptor& door, const std::string& job, int num_ranks, bool ending) {
  const auto answer = [&](NewDescriptor made) {
    if (made.call.error == EAGAIN || made.call.error == ECONNABORTED) return;
    require_granted(made.call, "accept");
    tell_stranger(made.descriptor, job, num_ranks, ending);
  };
  try {
    NewDescriptor made = accept_at(door);
    if (lacks_room(made.call)) return with_own_descriptors(door.get(), [&] { answer(accept_at(door, 0)); });
    answer(std::move(made));
    return true;
  } catch (...) {
    // The rank gets no answer and tries again until its deadline.
    return false;
  }
}

}  // namespace tilewire::host
