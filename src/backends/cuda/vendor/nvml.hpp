// Links, clock and power of a GPU, which CUDA does not report, from NVIDIA's management library if it is there.
// Called by facts.cpp.
#pragma once

#include <string>

namespace tilewire::cuda {

/// A GPU's links to other devices.
struct OuterLinks {
  int nvlinks = -1;         ///< active ones; -1 = unknown
  int pcie_generation = 0;  ///< 0 = unknown
  int pcie_width = 0;
};

/// Limits of a GPU's speed; 0 = unknown.
struct Limits {
  int sm_mhz = 0;   ///< highest clock of its SMs
  int power_w = 0;  ///< enforced
};

class Nvml {
 public:
  Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  /// Whether the library is there and initialised.
  [[nodiscard]] bool usable() const { return usable_; }
  /// Version of the NVIDIA driver, "580.159.04"; empty = unknown.
  [[nodiscard]] std::string driver_version() const;
  /// Of the GPU with a bus address like "0000:1b:00.0".
  [[nodiscard]] OuterLinks links_of(const std::string& pci) const;
  [[nodiscard]] Limits limits_of(const std::string& pci) const;

 private:
  /// Null if it is unknown.
  [[nodiscard]] void* device_at(const std::string& pci) const;
  template <class Function>
  [[nodiscard]] Function look_up(const char* name) const;

  void* library_;
  bool usable_ = false;
};

}  // namespace tilewire::cuda
