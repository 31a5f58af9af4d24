// Writes that fail with an error instead of ending the process.
// Called by everything that writes to files and to standard output.
#include "core/failing_writes.hpp"

#include <poll.h>
#include <unistd.h>

#include <ctime>

namespace tilewire {

FailingWrites::FailingWrites() {
  sigset_t pending{};
  sigpending(&pending);
  sigemptyset(&ours_);
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    if (sigismember(&pending, signal) == 0) sigaddset(&ours_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &ours_, &before_);
}

FailingWrites::~FailingWrites() {
  const timespec at_once{};
  while (system_call([&] { return ::sigtimedwait(&ours_, nullptr, &at_once); }).ok()) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

SystemCall write_all(int descriptor, std::string_view bytes) {
  const FailingWrites guard;
  SystemCall put{0, 0};
  while (!bytes.empty()) {
    put = system_call([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (put.ok()) {
      bytes.remove_prefix(static_cast<size_t>(put.value));
    } else if (put.error == EAGAIN) {
      pollfd ready{descriptor, POLLOUT, 0};
      put = system_call([&] { return ::poll(&ready, 1, -1); });
    }
    if (!put.ok()) return put;
  }
  return put;
}

}  // namespace tilewire
