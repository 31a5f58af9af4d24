// Exchanges descriptors: every rank listens on a socket for a moment, and all peers send their descriptor to it.
// Called by backends whose memory is not in the shared segment.
#include "backends/host/exchange.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "backends/host/wire.hpp"
#include "backends/messages.hpp"
#include "core/text.hpp"

namespace tilewire::host {
namespace {

/// The message that carries a descriptor.
struct Label {
  int32_t rank = 0;
};

class Exchange {
 public:
  Exchange(HostGroup& group, int mine) : group_(group), mine_(mine), descriptors_(group.team().num_ranks) {}

  std::vector<Descriptor> run() {
    const std::string name = unique_name("descriptors");
    const std::optional<Descriptor> door = listen_at(name);
    ensure(door.has_value(), "the name {} is taken", name);
    // Exchange the names after all ranks listen, so that no send has to wait.
    const std::vector<std::string> names = exchange(group_, "exchange_descriptors", name);
    deadline_ = group_.deadline_ns();
    for (int peer = 0; peer < std::ssize(names); ++peer) {
      if (peer != group_.rank()) give(peer, names[peer]);
    }
    while (missing() > 0) take(*door);
    return std::move(descriptors_);
  }

 private:
  void give(int peer, const std::string& name) {
    Descriptor socket = new_socket();
    const Address address = address_of(name);
    const SystemCall reached = system_call(
        [&] { return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size); });
    if (!reached.ok()) refused(peer, reached);
    const Peer other = peer_of(socket);
    require(other.uid == geteuid() && other.pid == pid_of(peer), "the name {} of rank {} is held by another process",
            name, peer);
    const Label label{group_.rank()};
    const SystemCall sent = send_message(socket, std::as_bytes(std::span(&label, 1)), mine_);
    if (!sent.ok()) refused(peer, sent);
    sent_.push_back(std::move(socket));
  }

  [[noreturn]] void refused(int peer, const SystemCall& call) const {
    const std::string text = fmt::format("cannot send a descriptor to rank {}: {}", peer, call.why());
    group_.check_whole([&] { return text; });
    throw Error(ErrorKind::rank_lost, text);
  }

  void take(const Descriptor& door) {
    wait_for(door);
    const NewDescriptor made = accept_at(door);
    if (made.call.error == EAGAIN || made.call.error == ECONNABORTED) return;
    require_granted(made.call, "accept, for descriptors of other ranks");
    const Descriptor& socket = made.descriptor;
    const auto rank = rank_of(peer_of(socket));
    // Ignore processes that are not ranks of this group.
    if (!rank) return;
    wait_for(socket);
    Label label;
    Received received = receive_message(socket, std::as_writable_bytes(std::span(&label, 1)));
    require_granted(received.descriptor.call, fmt::format("the descriptor of rank {} was lost", *rank));
    if (received.call.value != sizeof(label) || !received.descriptor.descriptor.valid() || label.rank != *rank) {
      fail(ErrorKind::rank_lost, "rank {} gave no descriptor", *rank);
    }
    descriptors_[*rank] = std::move(received.descriptor.descriptor);
  }

  /// The rank of this process, if its descriptor is still missing.
  [[nodiscard]] std::optional<int> rank_of(const Peer& other) const {
    for (int rank = 0; rank < std::ssize(descriptors_); ++rank) {
      const bool waited_for = rank != group_.rank() && !descriptors_[rank].valid();
      if (waited_for && other.uid == geteuid() && other.pid == pid_of(rank)) return rank;
    }
    return std::nullopt;
  }

  [[nodiscard]] pid_t pid_of(int rank) const { return group_.segment().rank(rank).pid; }

  [[nodiscard]] int64_t missing() const {
    return std::ranges::count_if(descriptors_, [](const Descriptor& one) { return !one.valid(); }) - 1;
  }

  void wait_for(const Descriptor& socket) const {
    constexpr int64_t kSlice = 20'000'000;
    while (!readable_by(socket, std::min(deadline_, now_ns() + kSlice))) {
      group_.check_whole([&] { return silence(); });
      if (now_ns() >= deadline_) {
        fail(ErrorKind::timeout, "timeout after {} s: {}", group_.timeout_s(), silence());
      }
    }
  }

  [[nodiscard]] std::string silence() const {
    std::vector<int> silent;
    for (int rank = 0; rank < std::ssize(descriptors_); ++rank) {
      if (rank != group_.rank() && !descriptors_[rank].valid()) silent.push_back(rank);
    }
    return fmt::format("rank {} waits for a descriptor of rank {}", group_.rank(), fmt::join(silent, ", "));
  }

  HostGroup& group_;
  int mine_;
  std::vector<Descriptor> descriptors_;
  std::vector<Descriptor> sent_;
  int64_t deadline_ = 0;
};

}  // namespace

std::vector<Descriptor> exchange_descriptors(HostGroup& group, int mine) {
  ensure(group.separate(), "descriptors are exchanged by processes, not by threads");
  std::vector<Descriptor> theirs;
  or_tell(group, [&] { theirs = Exchange(group, mine).run(); });
  return theirs;
}

}  // namespace tilewire::host
