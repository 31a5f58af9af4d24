// Watches peers by pidfd: readable the moment a process is dead.
// Made by groups whose ranks are processes.
#include "backends/host/monitor.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backends/host/doorkeeper.hpp"
#include "backends/host/slot.hpp"
#include "backends/host/thread.hpp"
#include "core/text.hpp"

namespace tilewire::host {

Monitor::Monitor(std::shared_ptr<Segment> segment, int rank, Descriptor door, std::string job)
    : owner_(getpid()),
      segment_(std::move(segment)),
      door_(std::move(door)),
      job_(std::move(job)),
      stop_(granted_descriptor("eventfd", [] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
  for (int peer = 0; peer < segment_->num_ranks(); ++peer) {
    if (peer == rank) continue;
    if (Descriptor process = open_process(peer, segment_->rank(peer).pid); process.valid()) {
      peers_.push_back({std::move(process), peer});
    } else {
      report_death(peer);
    }
  }
  thread_ = start_thread([this] { watch(); });
}

Monitor::~Monitor() {
  if (getpid() != owner_) {
    // NOTE: a process that a rank has forked has no such thread, which can be neither joined nor let go.
    static_cast<void>(new std::thread(std::move(thread_)));
    return;
  }
  const uint64_t one = 1;
  static_cast<void>(!write(stop_.get(), &one, sizeof(one)));
  thread_.join();
}

/// Closed where the process is gone.
Descriptor Monitor::open_process(int rank, int pid) const {
  ensure(pid > 0, "rank {} has process number {}", rank, pid);
  NewDescriptor process = new_descriptor([&] { return syscall(SYS_pidfd_open, pid, 0); });
  if (process.call.error != ESRCH) {
    require_granted(process.call, fmt::format("pidfd_open, which watches rank {} (Linux 5.3)", rank));
  }
  return std::move(process.descriptor);
}

void Monitor::watch() {
  constexpr int64_t kPause = 100'000'000;
  int64_t deaf_until = 0;
  while (true) {
    const int64_t deaf_ms = std::max<int64_t>(0, (deaf_until - now_ns() + 999'999) / 1'000'000);
    std::vector<pollfd> watched{{stop_.get(), POLLIN, 0}, {deaf_ms > 0 ? -1 : door_.get(), POLLIN, 0}};
    for (const Watched& peer : peers_) watched.push_back({peer.process.get(), POLLIN, 0});
    if (poll(watched.data(), watched.size(), deaf_ms > 0 ? static_cast<int>(deaf_ms) : -1) < 0) continue;
    if (watched[0].revents != 0) return;
    // NOTE: who knocks and cannot be heard goes on knocking.
    const bool knock = watched[1].revents != 0;
    if (knock && !turn_away(door_, job_, segment_->num_ranks(), somebody_left())) deaf_until = now_ns() + kPause;
    for (size_t i = peers_.size(); i-- > 0;) {
      if (watched[i + 2].revents == 0) continue;
      report_death(peers_[i].rank);
      peers_.erase(peers_.begin() + static_cast<int64_t>(i));
    }
  }
}

bool Monitor::somebody_left() const {
  for (int rank = 0; rank < segment_->num_ranks(); ++rank) {
    if (segment_->rank(rank).presence.load(std::memory_order_acquire) == Presence::left) return true;
  }
  return false;
}

void Monitor::report_death(int rank) const {
  const RankState& state = segment_->rank(rank);
  if (state.presence.load(std::memory_order_acquire) == Presence::left) return;
  segment_->mark_broken({rank, ErrorKind::rank_lost, fmt::format("rank {} (process {}) died", rank, state.pid.load())});
}

}  // namespace tilewire::host
