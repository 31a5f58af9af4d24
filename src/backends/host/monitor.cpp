// Watches peers by pidfd: readable the moment a process is dead.
// Made by groups whose ranks are processes.
#include "backends/host/monitor.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "backends/host/thread.hpp"
#include "core/text.hpp"

namespace tilewire::host {

Monitor::Monitor(std::shared_ptr<Segment> segment, int rank, Descriptor door, std::string job)
    : segment_(std::move(segment)),
      door_(std::move(door)),
      job_(std::move(job)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  ensure(stop_.valid(), "eventfd: {}", std::strerror(errno));
  for (int peer = 0; peer < segment_->num_ranks(); ++peer) {
    if (peer == rank) continue;
    const int pid = segment_->rank(peer).pid;
    require(pid > 0, "rank {} runs in another pid namespace, where its death would go unnoticed", peer);
    Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (process.valid()) {
      peers_.push_back({std::move(process), peer});
    } else if (errno == ESRCH) {
      report_death(peer);
    } else {
      fail(ErrorKind::unsupported, "pidfd_open, which watches peers (Linux 5.3): {}", std::strerror(errno));
    }
  }
  thread_ = start_thread([this] { watch(); });
}

Monitor::~Monitor() {
  const uint64_t one = 1;
  static_cast<void>(!write(stop_.get(), &one, sizeof(one)));
  thread_.join();
}

void Monitor::watch() {
  while (true) {
    std::vector<pollfd> watched{{stop_.get(), POLLIN, 0}, {door_.get(), POLLIN, 0}};
    for (const Watched& peer : peers_) watched.push_back({peer.process.get(), POLLIN, 0});
    if (poll(watched.data(), watched.size(), -1) < 0) continue;
    if (watched[0].revents != 0) return;
    if (watched[1].revents != 0) turn_away(door_, job_, segment_->num_ranks(), somebody_left());
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
