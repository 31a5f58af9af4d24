// Sequenced-packet sockets in the abstract namespace.
// Called by rendezvous.cpp, monitor.cpp and exchange.cpp.
#include "backends/host/wire.hpp"

#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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
  ensure(getrandom(&random, sizeof(random), 0) == sizeof(random), "getrandom: {}", std::strerror(errno));
  return fmt::format("{}.{}.{:016x}", prefix, getpid(), random);
}

Descriptor new_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ensure(made.valid(), "socket: {}", std::strerror(errno));
  return made;
}

std::optional<Descriptor> listen_at(const std::string& name) {
  Descriptor door = new_socket();
  const Address address = address_of(name);
  if (bind(door.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) {
    ensure(errno == EADDRINUSE, "bind: {}", std::strerror(errno));
    return std::nullopt;
  }
  ensure(listen(door.get(), 4 * kMaxRanks) == 0, "listen: {}", std::strerror(errno));
  return door;
}

std::optional<Peer> peer_of(const Descriptor& socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return Peer{credentials.uid, credentials.pid};
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

bool send_message(const Descriptor& socket, std::span<const std::byte> message, int descriptor) {
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
  return sendmsg(socket.get(), &parts, MSG_NOSIGNAL) == std::ssize(message);
}

int64_t receive_message(const Descriptor& socket, std::span<std::byte> message, Descriptor& descriptor) {
  iovec data{message.data(), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr parts{};
  parts.msg_iov = &data;
  parts.msg_iovlen = 1;
  parts.msg_control = space.data();
  parts.msg_controllen = space.size();
  const ssize_t size = recvmsg(socket.get(), &parts, MSG_CMSG_CLOEXEC);
  if (size < 0) return -errno;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&parts); header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    descriptor = Descriptor(fd);
  }
  return size;
}

bool send_hello(const Descriptor& socket, const Hello& hello) {
  return send_message(socket, std::as_bytes(std::span(&hello, 1)));
}

void send_verdict(const Descriptor& socket, const Verdict& verdict, int memory) {
  send_message(socket, std::as_bytes(std::span(&verdict, 1)), memory);
}

int64_t receive_verdict(const Descriptor& socket, Verdict& verdict, Descriptor& memory) {
  const int64_t size = receive_message(socket, std::as_writable_bytes(std::span(&verdict, 1)), memory);
  verdict.text.back() = '\0';
  return size;
}

Verdict refusal(ErrorKind kind, const std::string& text) {
  Verdict verdict;
  verdict.kind = kind;
  std::memcpy(verdict.text.data(), text.data(), std::min(text.size(), verdict.text.size() - 1));
  return verdict;
}

}  // namespace tilewire::host
