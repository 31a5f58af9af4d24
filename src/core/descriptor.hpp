// File descriptors that close themselves, and are never those of the standard streams.
// Used by everything that opens one.
#pragma once

#include <array>
#include <utility>

#include "core/system_call.hpp"

namespace tilewire {

/// Owner of a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

/// A descriptor just made, or why there is none.
struct NewDescriptor {
  Descriptor descriptor;
  SystemCall call;
};

/// The least number of a descriptor that is nobody's standard stream.
constexpr int kAboveStreams = 3;

/// Take over the descriptor that a call returned. One below `lowest`, which is free where a program was started with
/// closed standard streams, moves up: prints go to 1 and 2, whatever lies there.
[[nodiscard]] NewDescriptor take_descriptor(const SystemCall& call, int lowest = kAboveStreams);

/// The descriptor that open(), socket(), ... return.
template <class Call>
[[nodiscard]] NewDescriptor new_descriptor(const Call& call, int lowest = kAboveStreams) {
  return take_descriptor(system_call(call), lowest);
}

/// The same where the system must not refuse it: throws Error(unsupported) that names `what`.
template <class Call>
[[nodiscard]] Descriptor granted_descriptor(const std::string& what, const Call& call) {
  NewDescriptor made = new_descriptor(call);
  require_granted(made.call, what);
  return std::move(made.descriptor);
}

/// Both ends of a pipe, closed on exec: to read from, to write to. Throws Error(unsupported) that names `what`.
[[nodiscard]] std::array<Descriptor, 2> new_pipe(const std::string& what);

}  // namespace tilewire
