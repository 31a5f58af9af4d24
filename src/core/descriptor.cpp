// File descriptors above those of the standard streams.
// Called through descriptor.hpp.
#include "core/descriptor.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace tilewire {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  reset();
  fd_ = other.release();
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) ::close(release());
}

NewDescriptor take_descriptor(const SystemCall& call, int lowest) {
  if (!call.ok()) return {Descriptor(), call};
  Descriptor made(static_cast<int>(call.value));
  if (made.get() >= lowest) return {std::move(made), call};
  const SystemCall moved = system_call([&] { return ::fcntl(made.get(), F_DUPFD_CLOEXEC, lowest); });
  // NOTE: the system returns EINVAL if all numbers from `lowest` on are above the limit.
  if (moved.error == EINVAL) return {Descriptor(), {-1, EMFILE}};
  return {Descriptor(static_cast<int>(moved.value)), moved};
}

std::array<Descriptor, 2> new_pipe(const std::string& what) {
  std::array<int, 2> ends{};
  require_granted(system_call([&] { return ::pipe2(ends.data(), O_CLOEXEC); }), what + ": pipe2");
  // NOTE: own both ends before either error is thrown.
  NewDescriptor to_read = take_descriptor({ends[0], 0});
  NewDescriptor to_write = take_descriptor({ends[1], 0});
  require_granted(to_read.call, what + ": pipe2");
  require_granted(to_write.call, what + ": pipe2");
  return {std::move(to_read.descriptor), std::move(to_write.descriptor)};
}

}  // namespace tilewire
