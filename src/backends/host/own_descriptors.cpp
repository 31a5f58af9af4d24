// Runs code in a thread with a file descriptor table of its own.
// Called by rendezvous.cpp and doorkeeper.cpp.
#include "backends/host/own_descriptors.hpp"

#include <linux/close_range.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "core/system_call.hpp"

namespace tilewire::host {
namespace {

/// Close descriptors one by one, on systems without close_range (before Linux 5.9).
bool close_each(unsigned first, unsigned last) {
  constexpr int64_t kMost = 1 << 20;
  if (!system_call([] { return ::unshare(CLONE_FILES); }).ok()) return false;
  const auto end = static_cast<unsigned>(std::clamp<int64_t>(sysconf(_SC_OPEN_MAX), 1024, kMost));
  for (unsigned fd = first; fd <= std::min(last, end); ++fd) ::close(static_cast<int>(fd));
  return true;
}

bool leave_all_but(int kept) {
  constexpr unsigned kEnd = ~0U;
  const auto close_from = [](unsigned first, unsigned last) {
    // NOTE: the process's descriptors stay open: CLOSE_RANGE_UNSHARE gives the thread its own table first.
    return first > last ||
           system_call([&] { return ::syscall(SYS_close_range, first, last, CLOSE_RANGE_UNSHARE); }).ok() ||
           close_each(first, last);
  };
  if (kept < 0) return close_from(0, kEnd);
  const auto number = static_cast<unsigned>(kept);
  return close_from(number + 1, kEnd) && (number == 0 || close_from(0, number - 1));
}

}  // namespace

bool with_own_descriptors(int kept, const std::function<void()>& act) {
  bool done = false;
  try {
    std::thread([&] {
      try {
        if (!leave_all_but(kept)) return;
        act();
        done = true;
      } catch (...) {
        // The caller reports its own error.
      }
    }).join();
  } catch (...) {
    // The caller reports its own error.
  }
  return done;
}

}  // namespace tilewire::host
