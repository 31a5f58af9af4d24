// Start-up: rank 0 keeps the door, collects everybody's hello and hands out the shared memory.
// Called by join on every rank, and by monitors for late knocks.
#include "backends/host/rendezvous.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backends/host/wire.hpp"
#include "core/text.hpp"

namespace tilewire::host {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

int64_t to_ns(double seconds) { return static_cast<int64_t>(std::min(seconds, 1e9) * 1e9); }

/// A process that has come through the door.
struct Guest {
  Descriptor socket;
  pid_t pid = 0;
  std::optional<Hello> hello;
};

/// Rank 0's side of start-up.
class Host {
 public:
  Host(const JoinOptions& options, Descriptor door, const Hello& mine)
      : options_(options), door_(std::move(door)), mine_(mine), deadline_(mine.deadline_ns) {}

  Membership receive_all() {
    while (now_ns() < deadline_ && !(trouble_.empty() && complete())) receive_some();
    if (trouble_.empty() && !complete()) note(ErrorKind::timeout, silence());
    if (!trouble_.empty()) refuse();
    Membership membership{share_memory(), std::move(door_)};
    membership.segment->rank(0).pid = getpid();
    for (const Guest& guest : guests_) membership.segment->rank(guest.hello->rank).pid = guest.pid;
    Verdict good;
    good.good = 1;
    for (const Guest& guest : guests_) send_verdict(guest.socket, good, membership.segment->descriptor());
    return membership;
  }

 private:
  [[nodiscard]] bool complete() const {
    return std::ssize(guests_) == options_.num_ranks - 1 &&
           std::all_of(guests_.begin(), guests_.end(), [](const Guest& guest) { return guest.hello.has_value(); });
  }

  std::unique_ptr<Segment> share_memory() {
    try {
      return Segment::create(options_.num_ranks, options_.arena_bytes);
    } catch (const Error& error) {
      note(error.kind(), error.what());
      refuse();
    }
  }

  void receive_some() {
    std::vector<pollfd> watched{{door_.get(), POLLIN, 0}};
    for (const Guest& guest : guests_) watched.push_back({guest.socket.get(), POLLIN, 0});
    const int64_t left_ms = (deadline_ - now_ns()) / kMillisecond + 1;
    if (poll(watched.data(), watched.size(), static_cast<int>(std::clamp<int64_t>(left_ms, 0, 3'600'000))) <= 0) return;
    for (size_t i = guests_.size(); i-- > 0;) {
      if (watched[i + 1].revents != 0 && !hear(guests_[i])) guests_.erase(guests_.begin() + static_cast<int64_t>(i));
    }
    if (watched[0].revents != 0) admit();
  }

  void admit() {
    Descriptor socket(accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    // Somebody else's process has no business here and gets no answer.
    const auto peer = peer_of(socket);
    if (!peer || peer->uid != geteuid()) return;
    guests_.push_back({std::move(socket), peer->pid, std::nullopt});
  }

  /// Whether the guest stays.
  bool hear(Guest& guest) {
    Hello hello;
    const ssize_t size = recv(guest.socket.get(), &hello, sizeof(hello), 0);
    if (size < 0 && errno == EAGAIN) return true;
    if (size <= 0) {
      if (guest.hello)
        note(ErrorKind::rank_lost,
             fmt::format("rank {} (process {}) ended during start-up", guest.hello->rank, guest.pid));
      return false;
    }
    if (size != sizeof(hello) || hello.protocol != kProtocol) {
      note(ErrorKind::invalid_input, fmt::format("process {} speaks another version of tilewire", guest.pid));
      return true;
    }
    guest.hello = hello;
    deadline_ = std::min(deadline_, hello.deadline_ns);
    examine(guest);
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
  }

  [[nodiscard]] std::optional<pid_t> pid_of_other(const Guest& guest) const {
    if (guest.hello->rank == 0) return getpid();
    for (const Guest& other : guests_) {
      if (&other != &guest && other.hello && other.hello->rank == guest.hello->rank) return other.pid;
    }
    return std::nullopt;
  }

  /// Collect for a moment longer, so that everybody who comes hears why nothing starts.
  void note(ErrorKind kind, const std::string& text) {
    constexpr int64_t kGrace = 300 * kMillisecond;
    if (trouble_.empty()) {
      kind_ = kind;
      deadline_ = std::min(deadline_, now_ns() + kGrace);
    }
    trouble_ += (trouble_.empty() ? "" : "; ") + text;
  }

  [[nodiscard]] std::string silence() const {
    std::string silent;
    for (int rank = 1; rank < options_.num_ranks; ++rank) {
      const bool here = std::any_of(guests_.begin(), guests_.end(),
                                    [&](const Guest& guest) { return guest.hello && guest.hello->rank == rank; });
      if (!here) silent += fmt::format("{}{}", silent.empty() ? "" : ", ", rank);
    }
    return fmt::format("no word from rank {} of {} within {} s", silent, options_.num_ranks, options_.timeout_s);
  }

  [[noreturn]] void refuse() {
    const std::string text = fmt::format("job '{}' did not start: {}", options_.job, trouble_);
    for (const Guest& guest : guests_) send_verdict(guest.socket, refusal(kind_, text));
    throw Error(kind_, text);
  }

  const JoinOptions& options_;
  Descriptor door_;
  Hello mine_;
  int64_t deadline_;
  std::vector<Guest> guests_;
  ErrorKind kind_ = ErrorKind::internal;
  std::string trouble_;
};

/// One attempt to come through rank 0's door; nothing where nobody is there yet, or a job that ends, whose process
/// `ending` then is.
std::optional<Membership> knock(const JoinOptions& options, const Hello& hello, pid_t& ending) {
  constexpr int64_t kPatience = 1000 * kMillisecond;
  ending = 0;
  const Descriptor socket = new_socket();
  const Address address = address_of(options.job);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) return std::nullopt;
  const auto peer = peer_of(socket);
  require(peer && peer->uid == geteuid(), "job name '{}' is held by another user's process", options.job);
  // The last job of this name may be on its way out: its door closes before it has heard us, or is closed to us.
  ending = peer->pid;
  if (!send_hello(socket, hello)) return std::nullopt;
  if (!readable_by(socket, hello.deadline_ns + kPatience)) {
    fail(ErrorKind::timeout, "job '{}' did not start: rank 0 (process {}) did not answer within {} s", options.job,
         peer->pid, options.timeout_s);
  }
  Verdict verdict;
  Descriptor memory;
  const int64_t size = receive_verdict(socket, verdict, memory);
  if (size == -ECONNRESET) return std::nullopt;
  if (size <= 0) {
    fail(ErrorKind::rank_lost, "job '{}' did not start: rank 0 (process {}) ended during start-up", options.job,
         peer->pid);
  }
  if (verdict.good == 0) throw Error(verdict.kind, verdict.text.data());
  ensure(memory.valid(), "rank 0 sent no shared memory");
  return Membership{Segment::attach(std::move(memory), options.num_ranks, options.arena_bytes), Descriptor()};
}

void validate(const JoinOptions& options) {
  require(options.num_ranks >= 1 && options.num_ranks <= kMaxRanks, "host ranks: want 1 to {}, got {}", kMaxRanks,
          options.num_ranks);
  require(options.rank >= 0 && options.rank < options.num_ranks, "rank {} of {}: want 0 to {}", options.rank,
          options.num_ranks, options.num_ranks - 1);
  require(!options.job.empty(), "the job name is empty: ranks find each other by it");
  require_timeout(options.timeout_s);
}

}  // namespace

void require_timeout(double timeout_s) { require(timeout_s > 0, "timeout of {} s: want more than 0", timeout_s); }

Membership meet(const JoinOptions& options) {
  validate(options);
  const Hello hello{kProtocol, options.rank, options.num_ranks, options.arena_bytes,
                    now_ns() + to_ns(options.timeout_s)};
  pid_t ending = 0;
  while (true) {
    if (options.rank == 0) {
      if (auto door = listen_at(options.job)) return Host(options, std::move(*door), hello).receive_all();
    }
    if (auto membership = knock(options, hello, ending)) return std::move(*membership);
    if (now_ns() >= hello.deadline_ns) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const std::string other =
      ending == 0 ? "" : fmt::format("; process {} has not left another job of the name, which is ending", ending);
  fail(ErrorKind::timeout, "job '{}' did not start: no word from rank 0 of {} within {} s{}", options.job,
       options.num_ranks, options.timeout_s, other);
}

void turn_away(const Descriptor& door, const std::string& job, int num_ranks, bool ending) {
  constexpr int64_t kPatience = 100 * kMillisecond;
  const Descriptor socket(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return;
  const auto peer = peer_of(socket);
  if (!peer || peer->uid != geteuid() || !readable_by(socket, now_ns() + kPatience)) return;
  if (ending) return;  // with an unread hello: they hear ECONNRESET, and knock again
  // NOTE: a socket closed with an unread hello would drop the answer.
  Hello hello;
  static_cast<void>(recv(socket.get(), &hello, sizeof(hello), 0));
  send_verdict(socket, refusal(ErrorKind::invalid_input,
                               fmt::format("a job named '{}' is running already ({} ranks, rank 0 is process {})", job,
                                           num_ranks, getpid())));
}

}  // namespace tilewire::host
