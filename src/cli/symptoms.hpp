// What a machine lacks for a backend, and what to do about it.
// Found by `tilewire doctor`; plain facts in, findings out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/cuda.hpp"

namespace tilewire::cli {

/// Facts of this machine and process. Limits are absent where there are none.
struct MachineState {
  int cores = 1;
  std::optional<int64_t> most_descriptors{};     ///< ulimit -n
  std::optional<int64_t> most_addresses{};       ///< ulimit -v, bytes
  std::optional<int64_t> most_file_bytes{};      ///< ulimit -f, bytes
  int64_t memory_bytes = 0;                      ///< that this process may use: the machine's, or its cgroup's
  bool memory_of_cgroup = false;                 ///< the latter
  std::optional<int64_t> shared_memory_bytes{};  ///< free in /dev/shm; absent = there is none
  std::string gemm{};                            ///< library that multiplies on CPU ranks
  std::string python_package{};                  ///< version of tilewire that python3 imports; empty = none
  std::optional<int> device_connections{};       ///< CUDA_DEVICE_MAX_CONNECTIONS
  cuda::CudaFacts cuda{};                        ///< asked for with the backend cuda alone
};

[[nodiscard]] MachineState machine_state(bool with_gpus);

/// What is asked of it.
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
  std::string advice{};  ///< empty where nothing is to be done
};

/// In an order to read. The backend would run where none is `missing`, as far as facts tell.
[[nodiscard]] std::vector<Finding> findings_of(const MachineState& machine, const Wanted& wanted);

}  // namespace tilewire::cli
