// Start-up of ranks other than 0: connect to rank 0 until it sends the shared memory, and map the memory.
// Called by join on every rank.
#include "backends/host/rendezvous.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "backends/host/doorkeeper.hpp"
#include "backends/host/own_descriptors.hpp"
#include "backends/host/wire.hpp"
#include "core/text.hpp"

namespace tilewire::host {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
/// Time that rank 0 may need after a deadline to report it.
constexpr int64_t kPatience = 1000 * kMillisecond;

int64_t to_ns(double seconds) { return static_cast<int64_t>(std::min(seconds, 1e9) * 1e9); }

/// Connect `socket` to rank 0. False if rank 0 does not listen.
bool reach(const Descriptor& socket, const std::string& job) {
  const Address address = address_of(job);
  const SystemCall call = system_call(
      [&] { return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size); });
  if (call.error == EPERM || call.error == EACCES || call.error == ENOSYS) require_granted(call, "connect");
  return call.ok();
}

/// Receive rank 0's next message. No value if the connection has ended, which may follow a refusal.
Received hear(const Descriptor& socket, const JoinOptions& options, int64_t deadline_ns, Verdict& verdict) {
  if (!readable_by(socket, deadline_ns)) {
    fail(ErrorKind::timeout, "job '{}' did not start: {} did not answer within {} s", options.job,
         name_of(0, peer_of(socket).pid), options.timeout_s);
  }
  Received received = receive_verdict(socket, verdict);
  // NOTE: after ECONNRESET, a message may still be queued: rank 0 closed the socket with unread data of this rank.
  if (received.call.error == ECONNRESET) {
    Received behind = receive_verdict(socket, verdict);
    if (behind.call.value > 0) return behind;
  }
  return received;
}

[[noreturn]] void lost_rank_zero(const JoinOptions& options, pid_t pid) {
  fail(ErrorKind::rank_lost, "job '{}' did not start: {} ended during start-up", options.job, name_of(0, pid));
}

/// Map the memory that rank 0 sent. If that fails, report the Error to all ranks.
std::shared_ptr<Segment> map_memory(const JoinOptions& options, const Descriptor& socket, NewDescriptor memory) {
  try {
    require_granted(memory.call, "the descriptor of the shared memory was lost");
    ensure(memory.descriptor.valid(), "rank 0 sent no shared memory");
    return Segment::attach(std::move(memory.descriptor), options.num_ranks, options.arena_bytes);
  } catch (...) {
    const Error error = error_of_rank(options.rank);
    send_verdict(socket, refusal(error.kind(), error.what()));
    throw Error(error.kind(), did_not_start(options.job, error.what()));
  }
}

/// Report to rank 0, once it listens, why this rank cannot join.
void send_regrets(const JoinOptions& options, const Hello& hello, const Error& error) {
  with_own_descriptors(-1, [&] {
    while (now_ns() < hello.deadline_ns) {
      const Descriptor socket = new_socket(0);
      if (reach(socket, options.job) && peer_of(socket).uid == geteuid() && send_hello(socket, hello).ok() &&
          send_verdict(socket, refusal(error.kind(), error.what())).ok()) {
        Verdict verdict;
        if (hear(socket, options, hello.deadline_ns, verdict).call.value > 0) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
}

Descriptor socket_for(const JoinOptions& options, const Hello& hello) {
  try {
    return new_socket();
  } catch (...) {
    const Error error = error_of_rank(options.rank);
    send_regrets(options, hello, error);
    throw Error(error.kind(), did_not_start(options.job, error.what()));
  }
}

/// One attempt to join. Nothing if no process listens, or if an ending job of the same name still does; `ending` is
/// then its process.
std::optional<Membership> knock(const JoinOptions& options, const Hello& hello, pid_t& ending) {
  ending = 0;
  const Descriptor socket = socket_for(options, hello);
  if (!reach(socket, options.job)) return std::nullopt;
  const Peer peer = peer_of(socket);
  require(peer.uid == geteuid(), "job name '{}' is held by another user's process ({}, uid {}, here {})", options.job,
          peer.pid, peer.uid, geteuid());
  // The last job of this name may be ending: it then closes the connection without an answer.
  ending = peer.pid;
  const SystemCall sent = send_hello(socket, hello);
  Verdict verdict;
  Received received = hear(socket, options, hello.deadline_ns + kPatience, verdict);
  if (received.call.value <= 0 && (!sent.ok() || received.call.error == ECONNRESET)) return std::nullopt;
  if (received.call.value <= 0) lost_rank_zero(options, peer.pid);
  if (verdict.good == 0) throw Error(verdict.kind, verdict.text.data());
  Membership membership{map_memory(options, socket, std::move(received.descriptor)), Descriptor()};
  send_verdict(socket, approval());
  const int64_t deadline = std::max(hello.deadline_ns, now_ns() + kPatience) + kPatience;
  if (hear(socket, options, deadline, verdict).call.value <= 0) lost_rank_zero(options, peer.pid);
  if (verdict.good == 0) throw Error(verdict.kind, verdict.text.data());
  return membership;
}

void validate(const JoinOptions& options) {
  require(options.num_ranks >= 1 && options.num_ranks <= kMaxRanks, "host ranks: want 1 to {}, got {}", kMaxRanks,
          options.num_ranks);
  require(options.rank >= 0 && options.rank < options.num_ranks, "rank {} of {}: want 0 to {}", options.rank,
          options.num_ranks, options.num_ranks - 1);
  require(!options.job.empty(), "the job name is empty: ranks find each other by it");
  require_timeout(options.timeout_s);
  require_sms(options.sms);
}

}  // namespace

void require_timeout(double timeout_s) { require(timeout_s > 0, "timeout of {} s: want more than 0", timeout_s); }

void require_sms(int sms) { require(sms >= 0, "sms = {}: want 0 or more", sms); }

Membership meet(const JoinOptions& options) {
  validate(options);
  const Hello hello{.rank = options.rank,
                    .num_ranks = options.num_ranks,
                    .arena_bytes = options.arena_bytes,
                    .deadline_ns = now_ns() + to_ns(options.timeout_s),
                    .pid = getpid(),
                    .pid_namespace = my_pid_namespace()};
  pid_t ending = 0;
  while (true) {
    if (options.rank == 0) {
      if (auto membership = keep_door(options, hello)) return std::move(*membership);
    }
    if (auto membership = knock(options, hello, ending)) return std::move(*membership);
    if (now_ns() >= hello.deadline_ns) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const std::string other =
      ending == 0 ? "" : fmt::format("; process {} still holds the name for an earlier job that is ending", ending);
  fail(ErrorKind::timeout, "job '{}' did not start: rank 0 of {} has not joined within {} s{}", options.job,
       options.num_ranks, options.timeout_s, other);
}

}  // namespace tilewire::host
