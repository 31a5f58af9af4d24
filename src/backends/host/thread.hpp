// Starts threads; a failure is an Error.
// Used by pools, monitors and launch.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "core/system_call.hpp"
#include "core/text.hpp"

namespace tilewire::host {

/// Throws Error(unsupported) if the system refuses a thread.
template <class Body>
[[nodiscard]] std::thread start_thread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    fail(ErrorKind::unsupported, "a thread could not be started: {}", SystemCall{-1, error.code().value()}.why());
  }
}

}  // namespace tilewire::host
