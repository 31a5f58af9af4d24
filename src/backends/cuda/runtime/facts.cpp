// Facts of the GPUs that this process sees, and whether the backend is available.
// Called by groups that join, by the table of backends, and by `tilewire info`.
#include "backends/cuda/runtime/facts.hpp"

#include <array>

#include "backends/cuda/runtime/unavailable.hpp"
#include "backends/cuda/vendor/cublaslt.hpp"
#include "backends/cuda/vendor/nccl.hpp"
#include "backends/cuda/vendor/nvml.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// In the format of NVIDIA's tools.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

PeerAccess describe_peer(int gpu, int other) {
  PeerAccess peer{.gpu = other};
  int value = 0;
  check(cudaDeviceCanAccessPeer(&value, gpu, other), "cudaDeviceCanAccessPeer");
  peer.load_store = value != 0;
  check(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrNativeAtomicSupported, gpu, other),
        "cudaDeviceGetP2PAttribute");
  peer.atomics = value != 0;
  check(cudaDeviceGetP2PAttribute(&peer.performance_rank, cudaDevP2PAttrPerformanceRank, gpu, other),
        "cudaDeviceGetP2PAttribute");
  return peer;
}

void note_missing(const Gpu& gpu, int index, std::vector<std::string>& missing) {
  const auto note = [&](const std::string& text) { missing.push_back(fmt::format("GPU {}: {}", index, text)); };
  if (!gpu.virtual_memory) note("no virtual memory management");
  if (!gpu.descriptors) note("memory cannot be shared by file descriptors, so ranks can only be threads");
  if (gpu.capability != kCapability)
    note(fmt::format("kernels are for compute capability {}, this is {}", kCapability, gpu.capability));
  for (const PeerAccess& peer : gpu.peers) {
    if (!peer.load_store) note(fmt::format("cannot address the memory of GPU {}", peer.gpu));
  }
}

void collect_facts(CudaFacts& facts) {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  facts.runtime = version_text(version);
  if (const auto reason = missing_gpu()) fail(ErrorKind::unsupported, "{}", *reason);
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  facts.driver = version_text(version);
  const int count = num_gpus();
  const Driver driver = load_driver();
  const Nvml nvml;
  if (const auto library = missing_cublaslt()) facts.missing.push_back("compute = library: " + *library);
  if (const auto library = missing_nccl()) facts.missing.push_back("collective = library: " + *library);
  facts.nccl = nccl_version();
  facts.driver_version = nvml.driver_version();
  if (!nvml.usable()) facts.missing.emplace_back("NVIDIA's management library: the number of links is unknown");
  for (int index = 0; index < count; ++index) {
    Gpu gpu = describe_gpu(driver, index);
    const OuterLinks links = nvml.links_of(gpu.pci);
    gpu.nvlinks = links.nvlinks;
    gpu.pcie_generation = links.pcie_generation;
    gpu.pcie_width = links.pcie_width;
    const Limits limits = nvml.limits_of(gpu.pci);
    gpu.sm_mhz = limits.sm_mhz;
    gpu.power_w = limits.power_w;
    note_missing(gpu, index, facts.missing);
    facts.gpus.push_back(std::move(gpu));
  }
}

}  // namespace

int num_gpus() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count == 0) fail(ErrorKind::unsupported, "this process sees no GPU");
  return count;
}

Gpu describe_gpu(const Driver& driver, int gpu) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
  std::array<char, 32> pci{};
  check(cudaDeviceGetPCIBusId(pci.data(), pci.size(), gpu), "cudaDeviceGetPCIBusId");
  Gpu facts;
  facts.name = properties.name;
  facts.uuid = uuid_text(properties.uuid);
  facts.pci = pci.data();
  facts.capability = fmt::format("{}.{}", properties.major, properties.minor);
  facts.sms = properties.multiProcessorCount;
  facts.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  facts.copy_engines = properties.asyncEngineCount;
  facts.virtual_memory = attribute_of(driver, gpu, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
  facts.descriptors = attribute_of(driver, gpu, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
  for (int other = 0; other < num_gpus(); ++other) {
    if (other != gpu) facts.peers.push_back(describe_peer(gpu, other));
  }
  return facts;
}

std::optional<std::string> cuda_unavailable() { return missing_gpu(); }

CudaFacts cuda_facts() {
  CudaFacts facts;
  try {
    collect_facts(facts);
  } catch (const Error& error) {
    facts.missing.emplace_back(error.what());
  }
  return facts;
}

}  // namespace tilewire::cuda
