// Converts exceptions of all kinds to Error.
// Called by ranks that report to their peers, by launch, by the C interface and by the command line.
#pragma once

#include "tilewire/error.hpp"

namespace tilewire {

/// The exception that is being handled: an Error unchanged, std::bad_alloc as Error(unsupported), all others as
/// Error(internal).
[[nodiscard]] Error caught_error();

}  // namespace tilewire
