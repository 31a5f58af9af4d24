// Whether this machine has a GPU, without initialising CUDA: a process that has initialised it cannot fork ranks.
// Called by the table of backends.
#pragma once

#include <optional>
#include <string>

namespace tilewire::cuda {

/// Nothing if there is a GPU; else what is missing: the driver's library, or a device file nvidia<number> in `devices`.
[[nodiscard]] std::optional<std::string> missing_gpu(const char* driver_library = "libcuda.so.1",
                                                     const std::string& devices = "/dev");

}  // namespace tilewire::cuda
