// Checks that throw Error with a message made by fmt.
// Used by every source file of the library.
#pragma once

#include <fmt/format.h>

#include "tilewire/error.hpp"

namespace tilewire {

/// Throw an Error of this kind with a formatted message.
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Check for a mistake of the caller: throw Error(invalid_input) unless `condition` holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorKind::invalid_input, format, std::forward<Args>(args)...);
}

/// Check for a mistake of tilewire: throw Error(internal) unless `condition` holds.
template <class... Args>
void ensure(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorKind::internal, format, std::forward<Args>(args)...);
}

}  // namespace tilewire
