// Facts about this machine and build, without names of hosts or people.
// Used by bench (its JSON) and info.
#pragma once

#include <nlohmann/json.hpp>

namespace tilewire::cli {

/// {"cpu", "cores", "memory_bytes", "kernel", "compiler", "build", "tilewire", "gemm"}.
[[nodiscard]] nlohmann::json machine_facts();

}  // namespace tilewire::cli
