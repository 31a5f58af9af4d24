// Watches peers by pidfd, which becomes readable when a process dies.
// Made by groups whose ranks are processes.
#include "backends/host/monitor.hpp"

#include <sys/epoll.h>
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
      rank_(rank),
      segment_(std::move(segment)),
      door_(std::move(door)),
      job_(std::move(job)),
      stop_(granted_descriptor("eventfd", [] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })),
      events_(granted_descriptor("epoll_create1", [] { return epoll_create1(EPOLL_CLOEXEC); })) {
  require_granted(listen_to(stop_, kStop, EPOLL_CTL_ADD), "epoll_ctl");
  if (door_.valid()) require_granted(listen_to(door_, kDoor, EPOLL_CTL_ADD), "epoll_ctl");
  for (int peer = 0; peer < segment_->num_ranks(); ++peer) {
    if (peer == rank) continue;
    if (Descriptor process = open_process(peer, segment_->rank(peer).pid); process.valid()) {
      require_granted(listen_to(process, static_cast<uint32_t>(peers_.size()), EPOLL_CTL_ADD), "epoll_ctl");
      peers_.push_back({std::move(process), peer});
    } else {
      report_death(peer);
    }
  }
  thread_ = start_thread([this] { watch(); });
}

Monitor::~Monitor() {
  if (getpid() != owner_) {
    // NOTE: a forked process does not have this thread; the object can be neither joined nor destroyed.
    static_cast<void>(new std::thread(std::move(thread_)));
    return;
  }
  const uint64_t one = 1;
  static_cast<void>(!write(stop_.get(), &one, sizeof(one)));
  thread_.join();
}

/// Open a pidfd; closed if the process is gone.
Descriptor Monitor::open_process(int rank, int pid) const {
  ensure(pid > 0, "rank {} has process number {}", rank, pid);
  NewDescriptor process = new_descriptor([&] { return syscall(SYS_pidfd_open, pid, 0); });
  if (process.call.error != ESRCH) {
    require_granted(process.call, fmt::format("pidfd_open, which watches rank {} (Linux 5.3)", rank));
  }
  return std::move(process.descriptor);
}

SystemCall Monitor::listen_to(const Descriptor& source, uint32_t event, int operation) const {
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  wanted.data.u32 = event;
  return system_call([&] { return epoll_ctl(events_.get(), operation, source.get(), &wanted); });
}

/// NOTE: not poll(): it refuses more descriptors than the process's limit, which may have been lowered.
void Monitor::watch() {
  constexpr int64_t kPause = 100'000'000;
  int64_t deaf_until = 0;  // the door is not watched until then; 0 = it is watched
  while (true) {
    const int64_t left_ms = std::max<int64_t>(0, (deaf_until - now_ns() + 999'999) / 1'000'000);
    epoll_event event{};
    const SystemCall came = system_call(
        [&] { return epoll_wait(events_.get(), &event, 1, deaf_until == 0 ? -1 : static_cast<int>(left_ms)); });
    if (!came.ok()) {
      segment_->mark_broken({rank_, ErrorKind::internal, fmt::format("rank {}: epoll_wait: {}", rank_, came.why())});
      return;
    }
    if (deaf_until != 0 && now_ns() >= deaf_until && listen_to(door_, kDoor, EPOLL_CTL_ADD).ok()) deaf_until = 0;
    if (came.value == 0) continue;
    const uint32_t what = event.data.u32;
    if (what == kStop) return;
    if (what == kDoor) {
      // NOTE: a process that gets no answer tries again.
      if (turn_away(door_, job_, segment_->num_ranks(), somebody_left())) continue;
      static_cast<void>(listen_to(door_, kDoor, EPOLL_CTL_DEL));
      deaf_until = now_ns() + kPause;
      continue;
    }
    report_death(peers_[what].rank);
    static_cast<void>(listen_to(peers_[what].process, what, EPOLL_CTL_DEL));
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
