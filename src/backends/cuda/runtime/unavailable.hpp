// Whether this machine has a GPU, found out without starting CUDA: a process that has started it cannot fork ranks.
// Called by the table of backends.
#pragma once

#include <optional>
#include <string>

namespace tilewire::cuda {

/// Nothing, or what is missing: the driver's library, or a device file nvidia<number> in `devices`.
[[nodiscard]] std::optional<std::string> missing_gpu(const char* driver_library = "libcuda.so.1",
                                                     const std::string& devices = "/dev");

}  // namespace tilewire::cuda
