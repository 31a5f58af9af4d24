// What machine this is.
// Used by the tuner's file, the bench's JSON and `tilewire info`.
#pragma once

#include <string>

namespace tilewire {

/// "Intel(R) Xeon(R) ...", as the kernel says it, or "unknown".
[[nodiscard]] std::string cpu_model();
/// Cores that this process may use: of its affinity mask, and at most what CPU quotas allow, rounded up.
[[nodiscard]] int usable_cores();

}  // namespace tilewire
