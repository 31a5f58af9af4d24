// Messages between the processes of a job, with or without a file descriptor, and the socket calls below them.
// Used by both sides of the rendezvous, by exchange.cpp, and by tests that imitate foreign processes.
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

/// First field of every hello. It changes with the layout of messages and of the control block.
constexpr uint32_t kProtocol = 0x74770002;

/// The first message of a rank to rank 0.
struct Hello {
  uint32_t protocol = kProtocol;
  int32_t rank = 0;
  int32_t num_ranks = 0;
  int64_t arena_bytes = 0;
  int64_t deadline_ns = 0;
  int32_t pid = 0;             ///< number in the rank's own namespace; 0 = unknown
  uint64_t pid_namespace = 0;  ///< result of my_pid_namespace
};

/// Rank 0's answer, and then the rank's report. The shared memory is attached to rank 0's first good answer.
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

/// An abstract address, "tilewire.<uid>.<job>"; a hash shortens long job names.
struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
};
[[nodiscard]] Address address_of(const std::string& job);
/// "<prefix>.<process>.<16 random digits>": a unique name.
[[nodiscard]] std::string unique_name(const std::string& prefix);
/// Identifies this process's PID namespace; 0 = unknown, because /proc is missing or belongs to another namespace.
[[nodiscard]] uint64_t my_pid_namespace();
/// Make a socket whose number is at least `lowest`, as in the functions below. Throws Error(unsupported).
[[nodiscard]] Descriptor new_socket(int lowest = kAboveStreams);
/// Make a socket that listens under `name`; nothing if another process already does. Throws Error(unsupported).
[[nodiscard]] std::optional<Descriptor> listen_at(const std::string& name, int lowest = kAboveStreams);
/// Accept the next connection. Never blocks.
[[nodiscard]] NewDescriptor accept_at(const Descriptor& door, int lowest = kAboveStreams);
/// Whether a call failed because the process or the system has no room for another socket.
[[nodiscard]] bool lacks_room(const SystemCall& call);
/// The process at the other end. Throws Error(unsupported) if the system does not tell it.
[[nodiscard]] Peer peer_of(const Descriptor& socket);
/// Wait until `socket` is readable. False if the deadline passes first.
[[nodiscard]] bool readable_by(const Descriptor& socket, int64_t deadline_ns);

/// A received message, and the descriptor that was attached to it.
struct Received {
  SystemCall call;           ///< bytes received; 0 = the other end is closed
  NewDescriptor descriptor;  ///< closed if none was attached; an error if it was lost
};
/// Send one message, with `descriptor` attached unless it is negative. Never blocks.
SystemCall send_message(const Descriptor& socket, std::span<const std::byte> message, int descriptor = -1);
/// Receive one message. Never blocks.
[[nodiscard]] Received receive_message(const Descriptor& socket, std::span<std::byte> message);

/// As send_message.
SystemCall send_hello(const Descriptor& socket, const Hello& hello);
SystemCall send_verdict(const Descriptor& socket, const Verdict& verdict, int memory = -1);
/// As receive_message.
[[nodiscard]] Received receive_verdict(const Descriptor& socket, Verdict& verdict);
[[nodiscard]] Verdict approval();
[[nodiscard]] Verdict refusal(ErrorKind kind, const std::string& text);

}  // namespace tilewire::host
