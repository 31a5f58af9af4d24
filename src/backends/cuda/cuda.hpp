// The cuda backend without CUDA's headers. It is in every build; a build without CUDA reports the reason.
// Used by the table of backends, and by `tilewire info`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/host/group.hpp"
#include "tilewire/group.hpp"

namespace tilewire::cuda {

/// The compute capability that the kernels are compiled for; they run on no other.
inline constexpr const char* kCapability = "9.0";

/// For the table of backends: the reason why cuda cannot run here (none: it can), and a new group of GPUs.
[[nodiscard]] std::optional<std::string> cuda_unavailable();
[[nodiscard]] std::unique_ptr<Group> make_cuda_group(std::unique_ptr<host::HostGroup> ranks,
                                                     const JoinOptions& options);

/// How one GPU reaches another's memory.
struct PeerAccess {
  int gpu = 0;               ///< the other GPU
  bool load_store = false;   ///< by loads and stores
  bool atomics = false;      ///< by atomic operations, too
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
  bool descriptors = false;     ///< such memory can be exported as a file descriptor
  int nvlinks = -1;             ///< active NVLinks; -1 = unknown
  int pcie_generation = 0;      ///< 0 = unknown
  int pcie_width = 0;           ///< lanes
  int sm_mhz = 0;               ///< highest clock of the SMs; 0 = unknown
  int power_w = 0;              ///< limit; 0 = unknown
  std::vector<PeerAccess> peers{};
};

/// What CUDA reports about this machine, and which requirements of the backend it does not meet.
struct CudaFacts {
  std::string driver{};          ///< newest CUDA version that the driver supports, "13.0"; empty = no driver
  std::string driver_version{};  ///< "580.159.04"; empty = unknown
  std::string runtime{};         ///< CUDA version of this build
  std::string nccl{};            ///< version of NCCL; empty = not found
  std::vector<Gpu> gpus{};
  std::vector<std::string> missing{};
};

/// Never throws. Initialises CUDA in this process, which must fork no ranks after that.
[[nodiscard]] CudaFacts cuda_facts();

}  // namespace tilewire::cuda
