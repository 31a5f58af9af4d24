// Results of system calls, with their errno.
// Used by all code that calls the system; no other file reads errno (tests/tools/source_rules_test.py).
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/text.hpp"

namespace tilewire {

/// Result of a call. `error` is its errno; 0 if it succeeded.
struct SystemCall {
  int64_t value = -1;
  int error = 0;

  [[nodiscard]] bool ok() const { return error == 0; }
  /// Text of the error, "Permission denied". If a limit of this process is the cause, the text names it: "Too many open
  /// files (the limit is 11: ulimit -n)".
  [[nodiscard]] std::string why() const;
};

/// Make a call that returns -1 (or MAP_FAILED) and sets errno on failure. Do not repeat it after a signal: for close().
template <class Call>
[[nodiscard]] SystemCall system_call_once(const Call& call) {
  // NOTE: clear errno, so that a call that fails without setting errno does not show an older one.
  errno = 0;
  const auto value = call();
  int64_t result = 0;
  if constexpr (std::is_pointer_v<std::remove_const_t<decltype(value)>>) {
    result = reinterpret_cast<int64_t>(value);
  } else {
    result = static_cast<int64_t>(value);
  }
  if (result != -1) return {result, 0};
  return {-1, errno == 0 ? EIO : errno};
}

/// The same, but repeat a call that a signal interrupted.
template <class Call>
[[nodiscard]] SystemCall system_call(const Call& call) {
  while (true) {
    const SystemCall made = system_call_once(call);
    if (made.error != EINTR) return made;
  }
}

/// Throw Error(unsupported), "memfd_create: Operation not permitted", unless the call succeeded. For calls that a
/// system can refuse to a correct program (limits, seccomp filters, old kernels).
void require_granted(const SystemCall& call, const std::string& what);

/// "64 GiB", "1.5 MiB", "100 bytes".
[[nodiscard]] std::string in_bytes(int64_t bytes);

}  // namespace tilewire
