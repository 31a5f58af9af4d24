// Errors of the C interface: converts exceptions to statuses and stores the text for the thread.
// Used by every function of the C interface.
#pragma once

#include <string>

#include "core/text.hpp"
#include "tilewire/c.h"
#include "tilewire/error.hpp"

namespace tilewire::c {

[[nodiscard]] tilewire_status status_of(ErrorKind kind);
/// The kind of a status that is an error. Throws Error(invalid_input) for TILEWIRE_OK and unknown numbers.
[[nodiscard]] ErrorKind kind_of(tilewire_status status);

/// This thread's last failed call.
struct LastError {
  tilewire_status status = TILEWIRE_OK;
  std::string text{};
};

[[nodiscard]] LastError& last_error() noexcept;
/// Store the exception that is being handled, and return its status.
tilewire_status record_exception() noexcept;

/// Run the body of a C function. No exception leaves it.
template <class Body>
tilewire_status guarded(const Body& body) noexcept {
  try {
    body();
    return TILEWIRE_OK;
  } catch (...) {
    return record_exception();
  }
}

/// Throw Error(invalid_input) for a null pointer: "tilewire_run: op is a null pointer".
void require_pointer(const void* pointer, const char* function, const char* name);

}  // namespace tilewire::c
