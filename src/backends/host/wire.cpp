// SOCK_SEQPACKET sockets in the abstract namespace.
// Called by rendezvous.cpp, doorkeeper.cpp and exchange.cpp.
#include "backends/host/wire.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>

#include "backends/host/slot.hpp"
#include "core/text.hpp"

namespace tilewire::host {

Address address_of(const std::string& job) {
  constexpr size_t kLongest = 64;
  std::string name = fmt::format("tilewire.{}.{}", geteuid(), job);
  if (name.size() > kLongest) {
    name = fmt::format("{}.{:x}", name.substr(0, kLongest), std::hash<std::string>{}(job));
  }
  Address address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string unique_name(const std::string& prefix) {
  uint64_t random = 0;
  require_granted(system_call([&] { return getrandom(&random, sizeof(random), 0); }), "getrandom");
  return fmt::format("{}.{}.{:016x}", prefix, getpid(), random);
}

uint64_t my_pid_namespace() {
  struct stat facts {};
  return system_call([&] { return stat("/proc/self/ns/pid", &facts); }).ok() ? facts.st_ino : 0;
}

Descriptor new_socket(int lowest) {
  NewDescriptor made =
      new_descriptor([] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }, lowest);
  require_granted(made.call, "socket");
  return std::move(made.descriptor);
}

std::optional<Descriptor> listen_at(const std::string& name, int lowest) {
  Descriptor door = new_socket(lowest);
  const Address address = address_of(name);
  const SystemCall bound =
      system_call([&] { return bind(door.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size); });
  if (bound.error == EADDRINUSE) return std::nullopt;
  require_granted(bound, "bind");
  require_granted(system_call([&] { return listen(door.get(), 4 * kMaxRanks); }), "listen");
  return door;
}

NewDescriptor accept_at(const Descriptor& door, int lowest) {
  return new_descriptor([&] { return accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }, lowest);
}

bool lacks_room(const SystemCall& call) {
  return call.error == EMFILE || call.error == ENFILE || call.error == ENOMEM || call.error == ENOBUFS;
}

Peer peer_of(const Descriptor& socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  require_granted(system_call([&] { return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size); }),
                  "getsockopt, which says whose process is at the other end");
  return {credentials.uid, credentials.pid};
}

bool readable_by(const Descriptor& socket, int64_t deadline_ns) {
  while (true) {
    pollfd watched{socket.get(), POLLIN, 0};
    const int64_t left_ms = std::max<int64_t>(0, (deadline_ns - now_ns() + 999'999) / 1'000'000);
    const int ready = poll(&watched, 1, static_cast<int>(std::min<int64_t>(left_ms, 3'600'000)));
    if (ready > 0) return true;
    if (ready == 0 && now_ns() >= deadline_ns) return false;
  }
}

SystemCall send_message(const Descriptor& socket, std::span<const std::byte> message, int descriptor) {
  iovec data{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr parts{};
  parts.msg_iov = &data;
  parts.msg_iovlen = 1;
  if (descriptor >= 0) {
    parts.msg_control = space.data();
    parts.msg_controllen = space.size();
    cmsghdr* header = CMSG_FIRSTHDR(&parts);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return system_call([&] { return sendmsg(socket.get(), &parts, MSG_NOSIGNAL); });
}

Received receive_message(const Descriptor& socket, std::span<std::byte> message) {
  iovec data{message.data(), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr parts{};
  parts.msg_iov = &data;
  parts.msg_iovlen = 1;
  parts.msg_control = space.data();
  parts.msg_controllen = space.size();
  Received received;
  received.call = system_call([&] { return recvmsg(socket.get(), &parts, MSG_CMSG_CLOEXEC); });
  if (!received.call.ok()) return received;
  const cmsghdr* header = CMSG_FIRSTHDR(&parts);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    received.descriptor = take_descriptor({fd, 0});
  } else if ((parts.msg_flags & MSG_CTRUNC) != 0) {
    // The kernel dropped the descriptor. Try to duplicate another one to find out whether the limit was the reason.
    const NewDescriptor one_more = new_descriptor([&] { return fcntl(socket.get(), F_DUPFD_CLOEXEC, kAboveStreams); });
    received.descriptor.call = {-1, one_more.call.ok() ? EACCES : EMFILE};
  }
  return received;
}

SystemCall send_hello(const Descriptor& socket, const Hello& hello) {
  return send_message(socket, std::as_bytes(std::span(&hello, 1)));
}

SystemCall send_verdict(const Descriptor& socket, const Verdict& verdict, int memory) {
  return send_message(socket, std::as_bytes(std::span(&verdict, 1)), memory);
}

Received receive_verdict(const Descriptor& socket, Verdict& verdict) {
  Received received = receive_message(socket, std::as_writable_bytes(std::span(&verdict, 1)));
  verdict.text.back() = '\0';
  return received;
}

Verdict approval() {
  Verdict verdict;
  verdict.good = 1;
  return verdict;
}

Verdict refusal(ErrorKind kind, const std::string& text) {
  Verdict verdict;
  verdict.kind = kind;
  std::memcpy(verdict.text.data(), text.data(), std::min(text.size(), verdict.text.size() - 1));
  return verdict;
}

}  // namespace tilewire::host
