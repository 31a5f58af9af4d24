// The cuda backend as seen without CUDA's headers: present in every build, also where it can only say why it cannot
// run. Used by the table of backends, and by `tilewire info`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/host/group.hpp"
#include "tilewire/group.hpp"

namespace tilewire::cuda {

/// What GPUs must be: the kernels are built for them alone.
inline constexpr const char* kCapability = "9.0";

/// The rows of the table of backends.
[[nodiscard]] std::optional<std::string> cuda_unavailable();
[[nodiscard]] std::unique_ptr<Group> make_cuda_group(std::unique_ptr<host::HostGroup> ranks,
                                                     const JoinOptions& options);

/// How one GPU reaches another's memory.
struct PeerAccess {
  int gpu = 0;               ///< the other
  bool load_store = false;   ///< by loads and stores
  bool atomics = false;      ///< by atomic operations too
  int performance_rank = 0;  ///< 0 = the best link of this machine
};

/// One GPU of this machine.
struct Gpu {
  std::string name{};
  std::string uuid{};        ///< "GPU-..."
  std::string pci{};         ///< "0000:1b:00.0"
  std::string capability{};  ///< "9.0"
  int sms = 0;
  int64_t memory_bytes = 0;
  int copy_engines = 0;
  bool virtual_memory = false;  ///< memory can be mapped by several devices and processes
  bool descriptors = false;     ///< and travels as a file descriptor
  int nvlinks = -1;             ///< active NVLinks; -1 = unknown
  int pcie_generation = 0;      ///< 0 = unknown
  int pcie_width = 0;           ///< lanes
  int sm_mhz = 0;               ///< highest clock of the SMs; 0 = unknown
  int power_w = 0;              ///< limit; 0 = unknown
  std::vector<PeerAccess> peers{};
};

/// What CUDA says about this machine, and what the backend misses.
struct CudaFacts {
  std::string driver{};          ///< newest CUDA that the driver knows, "13.0"; empty = none
  std::string driver_version{};  ///< "580.159.04"; empty = unknown
  std::string runtime{};         ///< CUDA of this build
  std::string nccl{};            ///< its version; empty = none
  std::vector<Gpu> gpus{};
  std::vector<std::string> missing{};
};

/// Never throws. Starts CUDA in this process, which can fork no ranks after that.
[[nodiscard]] CudaFacts cuda_facts();

}  // namespace tilewire::cuda
