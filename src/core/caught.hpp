// Exceptions of all kinds as the one error type.
// Used where exceptions end: by ranks that tell their peers, by launch, and by the borders to C and to the shell.
#pragma once

#include "tilewire/error.hpp"

namespace tilewire {

/// The exception that is being handled: an Error as it is, memory that ran out as Error(unsupported), all else as
/// Error(internal).
[[nodiscard]] Error caught_error();

}  // namespace tilewire
