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
#include "core/descriptor.hpp"
#include "tilewire/error.hpp"

namespace tilewire::host {

/// First word of every hello; changes with the layout of messages and control block.
constexpr uint32_t kProtocol = 0x74770002;

/// What a rank says when it comes.
struct Hello {
  uint32_t protocol = kProtocol;
  int32_t rank = 0;
  int32_t num_ranks = 0;
  int64_t arena_bytes = 0;
  int64_t deadline_ns = 0;
  int32_t pid = 0;             ///< as the rank itself sees it; 0 = unknown
  uint64_t pid_namespace = 0;  ///< as my_pid_namespace
};

/// What rank 0 answers, and what a rank then says of itself. The shared memory travels with rank 0's first good answer.
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
/// Identifies the namespace in which this process has its number; 0 = unknown, where /proc is missing or another's.
[[nodiscard]] uint64_t my_pid_namespace();
/// The socket's number is at least `lowest`, here and below. Throws Error(unsupported).
[[nodiscard]] Descriptor new_socket(int lowest = kAboveStreams);
/// A socket that listens under `name`; nothing where another process does already. Throws Error(unsupported).
[[nodiscard]] std::optional<Descriptor> listen_at(const std::string& name, int lowest = kAboveStreams);
/// Accept the next connection. Never blocks.
[[nodiscard]] NewDescriptor accept_at(const Descriptor& door, int lowest = kAboveStreams);
/// Whether a call failed because this process or the system has no room for one more socket.
[[nodiscard]] bool lacks_room(const SystemCall& call);
/// Throws Error(unsupported) where the system does not say.
[[nodiscard]] Peer peer_of(const Descriptor& socket);
/// Wait until `socket` is readable, or the deadline.
[[nodiscard]] bool readable_by(const Descriptor& socket, int64_t deadline_ns);

/// A message, and the descriptor that came with it.
struct Received {
  SystemCall call;           ///< bytes received; 0 = the other end is closed
  NewDescriptor descriptor;  ///< none where none was sent; an error where it got lost on its way
};
/// Send one message, with a descriptor where it is not negative. Never blocks.
SystemCall send_message(const Descriptor& socket, std::span<const std::byte> message, int descriptor = -1);
/// Never blocks.
[[nodiscard]] Received receive_message(const Descriptor& socket, std::span<std::byte> message);

/// As send_message.
SystemCall send_hello(const Descriptor& socket, const Hello& hello);
SystemCall send_verdict(const Descriptor& socket, const Verdict& verdict, int memory = -1);
/// As receive_message.
[[nodiscard]] Received receive_verdict(const Descriptor& socket, Verdict& verdict);
[[nodiscard]] Verdict approval();
[[nodiscard]] Verdict refusal(ErrorKind kind, const std::string& text);

}  // namespace tilewire::host
