// Messages between the processes of a job, with or without a file descriptor, and the socket calls under them.
// Used by both sides of the rendezvous, by exchange.cpp, and by tests that pretend to be a stranger.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backends/host/segment.hpp"
#include "tilewire/error.hpp"

namespace tilewire::host {

/// First word of every hello; changes with the layout of messages and control block.
constexpr uint32_t kProtocol = 0x74770001;

/// What a rank says when it comes.
struct Hello {
  uint32_t protocol = kProtocol;
  int32_t rank = 0;
  int32_t num_ranks = 0;
  int64_t arena_bytes = 0;
  int64_t deadline_ns = 0;
};

/// What rank 0 answers. The shared memory travels with a good answer.
struct Verdict {
  uint32_t good = 0;
  ErrorKind kind = ErrorKind::internal;
  std::array<char, kTextBytes> text{};
};

/// The user and process at the other end of a UNIX socket.
struct Peer {
  uid_t uid = 0;
  pid_t pid = 0;
};

/// An address without a file: "tilewire.<uid>.<job>", a long job name shortened by a hash.
struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
};
[[nodiscard]] Address address_of(const std::string& job);
/// "<prefix>.<process>.<16 random digits>": a name that no other job has.
[[nodiscard]] std::string unique_name(const std::string& prefix);
[[nodiscard]] Descriptor new_socket();
/// A socket that listens under `name`; nothing where another process does already.
[[nodiscard]] std::optional<Descriptor> listen_at(const std::string& name);
[[nodiscard]] std::optional<Peer> peer_of(const Descriptor& socket);
/// Wait until `socket` is readable, or the deadline.
[[nodiscard]] bool readable_by(const Descriptor& socket, int64_t deadline_ns);
/// Send one message, with a descriptor where it is not negative. Never blocks; says whether it went.
bool send_message(const Descriptor& socket, std::span<const std::byte> message, int descriptor = -1);
/// Bytes received; 0 = the other end is closed, < 0 = an errno, negated.
[[nodiscard]] int64_t receive_message(const Descriptor& socket, std::span<std::byte> message, Descriptor& descriptor);

/// As send_message.
bool send_hello(const Descriptor& socket, const Hello& hello);
/// Never blocks and never fails: who does not listen is watched by its process.
void send_verdict(const Descriptor& socket, const Verdict& verdict, int memory = -1);
/// As receive_message.
[[nodiscard]] int64_t receive_verdict(const Descriptor& socket, Verdict& verdict, Descriptor& memory);
[[nodiscard]] Verdict refusal(ErrorKind kind, const std::string& text);

}  // namespace tilewire::host
