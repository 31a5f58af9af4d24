// Facts about this machine: CPU model and usable cores.
// Used by the tuner's file, the bench's JSON and `tilewire info`.
#pragma once

#include <string>

namespace tilewire {

/// "Intel(R) Xeon(R) ..." from /proc/cpuinfo, or "unknown".
[[nodiscard]] std::string cpu_model();
/// Cores that this process may use: those of its affinity mask, limited by CPU quotas, which are rounded up.
[[nodiscard]] int usable_cores();

}  // namespace tilewire
