// A thread that no longer shares its process's table of descriptors.
// Called by rendezvous.cpp.
#include "backends/host/own_descriptors.hpp"

#include <linux/close_range.h>
#include <unistd.h>

#include <thread>

#include "core/system_call.hpp"

namespace tilewire::host {
namespace {

bool leave_all_but(int kept) {
  constexpr unsigned kEnd = ~0U;
  const auto close_from = [](unsigned first, unsigned last) {
    // NOTE: closes nothing of the process: the thread gets a table of its own first.
    return first > last || system_call([&] { return ::close_range(first, last, CLOSE_RANGE_UNSHARE); }).ok();
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
        // The caller has an error of its own to tell.
      }
    }).join();
  } catch (...) {
    // The caller has an error of its own to tell.
  }
  return done;
}

}  // namespace tilewire::host
