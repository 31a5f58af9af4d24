// Writes that fail with an error instead of ending the process.
// Used by everything that writes to files and to standard output.
#pragma once

#include <signal.h>

#include <string_view>

#include "core/system_call.hpp"

namespace tilewire {

/// While it lives, writes of this thread that SIGPIPE (the reader has gone) or SIGXFSZ (ulimit -f) would answer fail
/// with EPIPE or EFBIG, whatever the process does about these signals.
class FailingWrites {
 public:
  FailingWrites();
  FailingWrites(const FailingWrites&) = delete;
  FailingWrites& operator=(const FailingWrites&) = delete;
  ~FailingWrites();

 private:
  sigset_t ours_{};    // those that were not pending before
  sigset_t before_{};  // the thread's mask
};

/// Write all of it, in so many calls as it takes; waits where the descriptor does not block.
[[nodiscard]] SystemCall write_all(int descriptor, std::string_view bytes);

}  // namespace tilewire
