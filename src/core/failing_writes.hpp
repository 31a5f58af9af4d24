// Writes that fail with an error instead of ending the process.
// Used by all code that writes to files and to standard output.
#pragma once

#include <signal.h>

#include <string_view>

#include "core/system_call.hpp"

namespace tilewire {

/// While an object lives, this thread's writes fail with EPIPE (the reader has closed) or EFBIG (ulimit -f) instead of
/// raising SIGPIPE or SIGXFSZ, whatever handlers the process has for these signals.
class FailingWrites {
 public:
  FailingWrites();
  FailingWrites(const FailingWrites&) = delete;
  FailingWrites& operator=(const FailingWrites&) = delete;
  ~FailingWrites();

 private:
  sigset_t ours_{};    // signals that were not pending before
  sigset_t before_{};  // the thread's signal mask before
};

/// Write all bytes, in as many calls as needed. Waits if the descriptor is non-blocking and full.
[[nodiscard]] SystemCall write_all(int descriptor, std::string_view bytes);

}  // namespace tilewire
