// Facts about this machine and build, without names of hosts or people.
// Used by bench (its JSON) and info.
#pragma once

#include <nlohmann/json.hpp>

#include "backends/cuda/cuda.hpp"

namespace tilewire::cli {

/// {"cpu", "cores", "memory_bytes", "kernel", "compiler", "build", "tilewire", "commit", "gemm"}. The commit is that of
/// the build's configuration.
[[nodiscard]] nlohmann::json machine_facts();
/// {"driver", "driver_version", "runtime", "nccl", "gpus", "limits"}: null if unknown. "gpus": their names; "limits":
/// {"sm_mhz", "power_w"}, the highest clock and the enforced power limit.
[[nodiscard]] nlohmann::json gpu_facts(const cuda::CudaFacts& facts);

}  // namespace tilewire::cli
