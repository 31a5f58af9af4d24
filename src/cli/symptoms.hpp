// What a machine lacks for a backend, and what to do about it.
// Used by `tilewire doctor`; the input is plain facts, the output findings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/cuda.hpp"

namespace tilewire::cli {

/// Facts of this machine and process. A limit is absent if there is none.
struct MachineState {
  int cores = 1;
  std::optional<int64_t> most_descriptors{};     ///< ulimit -n
  std::optional<int64_t> most_addresses{};       ///< ulimit -v, bytes
  std::optional<int64_t> most_file_bytes{};      ///< ulimit -f, bytes
  int64_t memory_bytes = 0;                      ///< that this process may use: of the machine, or of its cgroup
  bool memory_of_cgroup = false;                 ///< it is the cgroup's
  std::optional<int64_t> shared_memory_bytes{};  ///< free in /dev/shm; absent = there is none
  std::string gemm{};                            ///< library that multiplies on CPU ranks
  std::string python_package{};                  ///< version of tilewire that python3 imports; empty = none
  std::optional<int> device_connections{};       ///< CUDA_DEVICE_MAX_CONNECTIONS
  cuda::CudaFacts cuda{};                        ///< filled in for the backend cuda only
};

[[nodiscard]] MachineState machine_state(bool with_gpus);

/// What the machine shall run.
struct Wanted {
  std::string backend = "host";
  int ranks = 2;
  bool threads = false;
  int64_t arena_bytes = 0;  ///< of each rank
};

enum class Health { ok, warning, missing };

/// One line of the doctor's report.
struct Finding {
  Health health = Health::ok;
  std::string what{};    ///< "descriptors"
  std::string seen{};    ///< "1024 (ulimit -n), 2 ranks need 34"
  std::string advice{};  ///< empty if there is nothing to do
};

/// The findings, in reading order. If none is `missing`, the backend would run, as far as facts tell.
[[nodiscard]] std::vector<Finding> findings_of(const MachineState& machine, const Wanted& wanted);

}  // namespace tilewire::cli
