// The functions of libnvidia-ml.so.1 in use, declared here, as not every toolkit has its header.
// Called by facts.cpp.
#include "backends/cuda/vendor/nvml.hpp"

#include <dlfcn.h>

#include <array>

namespace tilewire::cuda {
namespace {

// NOTE: all return 0 for success; a device is an opaque pointer, an enumeration an unsigned int.
using NoArguments = int (*)();
using Text = int (*)(char* text, unsigned size);
using ByAddress = int (*)(const char* pci, void** device);
using OfDevice = int (*)(void* device, unsigned* value);
using OfPart = int (*)(void* device, unsigned part, unsigned* value);  // a link, a clock

}  // namespace

template <class Function>
Function Nvml::look_up(const char* name) const {
  return reinterpret_cast<Function>(dlsym(library_, name));
}

Nvml::Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {
  if (library_ == nullptr) return;
  const auto init = look_up<NoArguments>("nvmlInit_v2");
  usable_ = init != nullptr && init() == 0;
}

Nvml::~Nvml() {
  if (usable_) {
    if (const auto shutdown = look_up<NoArguments>("nvmlShutdown")) shutdown();
  }
  if (library_ != nullptr) dlclose(library_);
}

std::string Nvml::driver_version() const {
  std::array<char, 80> text{};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
  const auto version = usable_ ? look_up<Text>("nvmlSystemGetDriverVersion") : nullptr;
  return version != nullptr && version(text.data(), text.size()) == 0 ? text.data() : "";
}

void* Nvml::device_at(const std::string& pci) const {
  const auto find = usable_ ? look_up<ByAddress>("nvmlDeviceGetHandleByPciBusId_v2") : nullptr;
  void* device = nullptr;
  return find != nullptr && find(pci.c_str(), &device) == 0 ? device : nullptr;
}

Limits Nvml::limits_of(const std::string& pci) const {
  constexpr unsigned kSmClock = 1;  // NVML_CLOCK_SM
  Limits limits;
  void* device = device_at(pci);
  if (device == nullptr) return limits;
  unsigned value = 0;
  const auto clock = look_up<OfPart>("nvmlDeviceGetMaxClockInfo");
  if (clock != nullptr && clock(device, kSmClock, &value) == 0) limits.sm_mhz = static_cast<int>(value);
  const auto power = look_up<OfDevice>("nvmlDeviceGetEnforcedPowerLimit");
  if (power != nullptr && power(device, &value) == 0) limits.power_w = static_cast<int>(value / 1000);
  return limits;
}

OuterLinks Nvml::links_of(const std::string& pci) const {
  constexpr unsigned kMostLinks = 18;
  OuterLinks links;
  void* device = device_at(pci);
  if (device == nullptr) return links;
  unsigned value = 0;
  if (const auto state = look_up<OfPart>("nvmlDeviceGetNvLinkState")) {
    links.nvlinks = 0;
    for (unsigned link = 0; link < kMostLinks; ++link) links.nvlinks += state(device, link, &value) == 0 && value == 1;
  }
  const auto generation = look_up<OfDevice>("nvmlDeviceGetCurrPcieLinkGeneration");
  if (generation != nullptr && generation(device, &value) == 0) links.pcie_generation = static_cast<int>(value);
  const auto width = look_up<OfDevice>("nvmlDeviceGetCurrPcieLinkWidth");
  if (width != nullptr && width(device, &value) == 0) links.pcie_width = static_cast<int>(value);
  return links;
}

}  // namespace tilewire::cuda
