// Owning file descriptors that never have the number of a standard stream.
// Used by all code that opens files, pipes or sockets.
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

/// A new descriptor, or the failed call.
struct NewDescriptor {
  Descriptor descriptor;
  SystemCall call;
};

/// The lowest number above the standard streams.
constexpr int kAboveStreams = 3;

/// Own the descriptor that a call returned. If its number is below `lowest`, duplicate it to a higher number: a program
/// that was started with closed standard streams gets 0 to 2, and prints would then go into the file.
[[nodiscard]] NewDescriptor take_descriptor(const SystemCall& call, int lowest = kAboveStreams);

/// Call open(), socket(), ... and own the descriptor that it returns.
template <class Call>
[[nodiscard]] NewDescriptor new_descriptor(const Call& call, int lowest = kAboveStreams) {
  return take_descriptor(system_call(call), lowest);
}

/// The same, but throws Error(unsupported) with `what` if the call fails.
template <class Call>
[[nodiscard]] Descriptor granted_descriptor(const std::string& what, const Call& call) {
  NewDescriptor made = new_descriptor(call);
  require_granted(made.call, what);
  return std::move(made.descriptor);
}

/// Make a pipe, closed on exec: {read end, write end}. Throws Error(unsupported) with `what`.
[[nodiscard]] std::array<Descriptor, 2> new_pipe(const std::string& what);

}  // namespace tilewire
