// The checks of `tilewire doctor`, one function for each thing that can be missing.
// Called by doctor.cpp and by its test.
#include "cli/symptoms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/system_call.hpp"

namespace tilewire::cli {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kOtherDescriptors = 32;          ///< of a rank, in addition to one for each other rank
constexpr int64_t kLeastMemory = 512 * kMiB;       ///< of a rank, for problems of a few thousand rows
constexpr int64_t kLeastSharedMemory = 64 * kMiB;  ///< of NCCL, for each rank

Finding ok(std::string what, std::string seen) { return {Health::ok, std::move(what), std::move(seen), {}}; }

Finding cores(const MachineState& machine, const Wanted& wanted) {
  const std::string seen = fmt::format("{} for {} ranks", machine.cores, wanted.ranks);
  if (wanted.backend != "host" || machine.cores >= wanted.ranks) return ok("cores", seen);
  return {
      Health::warning, "cores", seen,
      fmt::format("more ranks than cores: ranks run one after another, times mean little: --ranks {}", machine.cores)};
}

Finding descriptors(const MachineState& machine, const Wanted& wanted) {
  const int64_t needed = wanted.ranks + kOtherDescriptors;
  if (!machine.most_descriptors) return ok("descriptors", "no limit");
  const std::string seen = fmt::format("{} (ulimit -n), a rank needs {}", *machine.most_descriptors, needed);
  if (*machine.most_descriptors >= needed) return ok("descriptors", seen);
  return {Health::missing, "descriptors", seen, "ulimit -n 1024"};
}

/// Check a limit of shared memory, which is one sparse file of all ranks' arenas; each rank maps it.
Finding of_arenas(const std::string& what, const std::optional<int64_t>& limit, const char* flag,
                  const Wanted& wanted) {
  const int64_t needed = wanted.arena_bytes * wanted.ranks;
  if (!limit) return ok(what, "no limit");
  const std::string seen =
      fmt::format("{} (ulimit {}), arenas of {} ranks take {}", in_bytes(*limit), flag, wanted.ranks, in_bytes(needed));
  if (*limit > needed) return ok(what, seen);
  return {Health::missing, what, seen,
          fmt::format("ulimit {} unlimited, or smaller arenas: --arena-gib, JoinOptions::arena_bytes", flag)};
}

Finding memory(const MachineState& machine, const Wanted& wanted) {
  const int64_t needed = kLeastMemory * wanted.ranks;
  const std::string seen = fmt::format("{}{}", in_bytes(machine.memory_bytes / kMiB * kMiB),
                                       machine.memory_of_cgroup ? " (the cgroup's limit)" : "");
  if (wanted.backend != "host" || machine.memory_bytes >= needed) return ok("memory", seen);
  return {Health::warning, "memory", seen,
          fmt::format("{} ranks want {} for problems of a few thousand rows", wanted.ranks, in_bytes(needed))};
}

Finding gemm(const MachineState& machine) {
  if (machine.gemm.find("oneDNN") != std::string::npos) return ok("GEMM on CPUs", machine.gemm);
  return {Health::warning, "GEMM on CPUs", machine.gemm,
          "built without oneDNN, so that products are plain loops: install libdnnl-dev, and build again"};
}

Finding python(const MachineState& machine) {
  if (!machine.python_package.empty()) return ok("Python package", machine.python_package);
  return {Health::warning, "Python package", "python3 has no module tilewire", "pip install ."};
}

/// A version, "12.4", as a number to compare.
double version_of(const std::string& text) { return text.empty() ? 0 : std::atof(text.c_str()); }

Finding driver(const cuda::CudaFacts& facts) {
  // NOTE: if GPUs are not ready, the driver still reports its version.
  if (facts.driver.empty() || (facts.gpus.empty() && !facts.missing.empty())) {
    const std::string why = facts.missing.empty() ? "no driver" : facts.missing.back();
    const bool fabric = why.find("initialized") != std::string::npos || why.find("802") != std::string::npos;
    const bool absent = facts.runtime.empty();
    return {Health::missing, "driver", why,
            fabric   ? "start the fabric manager, which links GPUs by NVSwitch: systemctl start nvidia-fabricmanager"
            : absent ? "build with nvcc: -DTILEWIRE_CUDA=ON"
                     : "install NVIDIA's driver, until nvidia-smi lists the GPUs; in a container: --gpus all"};
  }
  const std::string seen =
      fmt::format("{} for CUDA {}, built with {}", facts.driver_version.empty() ? "unknown" : facts.driver_version,
                  facts.driver, facts.runtime);
  if (std::floor(version_of(facts.driver)) >= std::floor(version_of(facts.runtime))) return ok("driver", seen);
  return {Health::missing, "driver", seen, "update the driver, or build with an older CUDA toolkit"};
}

/// Number of GPUs that the ranks would get.
size_t used(const cuda::CudaFacts& facts, const Wanted& wanted) {
  return std::min(facts.gpus.size(), static_cast<size_t>(std::max(1, wanted.ranks)));
}

Finding gpus(const cuda::CudaFacts& facts, const Wanted& wanted) {
  const std::string seen = fmt::format("{} for {} ranks", facts.gpus.size(), wanted.ranks);
  if (std::ssize(facts.gpus) >= wanted.ranks) return ok("GPUs", seen);
  if (wanted.threads && !facts.gpus.empty())
    return {Health::warning, "GPUs", seen, "ranks share GPUs: right, and far slower"};
  return {Health::missing, "GPUs", seen,
          fmt::format("--ranks {}, or ranks that share a GPU, which are threads: --threads; CUDA_VISIBLE_DEVICES hides "
                      "GPUs",
                      facts.gpus.size())};
}

Finding capability(const cuda::CudaFacts& facts, const Wanted& wanted) {
  for (size_t i = 0; i < used(facts, wanted); ++i) {
    const cuda::Gpu& gpu = facts.gpus[i];
    if (gpu.capability != cuda::kCapability)
      return {Health::missing, "GPU kind", fmt::format("GPU {} is {}, capability {}", i, gpu.name, gpu.capability),
              fmt::format("kernels are for capability {} (H100, H200)", cuda::kCapability)};
    if (!gpu.virtual_memory || (!gpu.descriptors && !wanted.threads))
      return {Health::missing, "GPU kind", fmt::format("GPU {} cannot share memory between processes", i),
              "ranks as threads (--threads), or a system that passes file descriptors of GPU memory"};
  }
  const std::string name = facts.gpus.empty() ? "none" : facts.gpus.front().name;
  return ok("GPU kind", name);
}

Finding peers(const cuda::CudaFacts& facts, const Wanted& wanted) {
  const auto count = static_cast<int>(used(facts, wanted));
  for (int i = 0; i < count; ++i) {
    for (const cuda::PeerAccess& peer : facts.gpus[i].peers) {
      if (peer.gpu >= count || (peer.load_store && peer.atomics)) continue;
      return {Health::missing, "peer access",
              fmt::format("GPU {} cannot {} the memory of GPU {}", i,
                          peer.load_store ? "do atomic operations in" : "address", peer.gpu),
              "tilewire needs NVLink between the GPUs of a team: see nvidia-smi topo -m; choose others by "
              "CUDA_VISIBLE_DEVICES"};
    }
  }
  return ok("peer access", count > 1 ? "loads, stores and atomics between all" : "one GPU");
}

Finding links(const cuda::CudaFacts& facts, const Wanted& wanted) {
  const size_t count = used(facts, wanted);
  std::set<int> widths;
  for (size_t i = 0; i < count; ++i) widths.insert(facts.gpus[i].nvlinks);
  if (count < 2) return ok("links", "one GPU");
  if (widths.contains(-1)) {
    return {Health::warning, "links", "the number of NVLinks is unknown",
            "NVIDIA's management library (libnvidia-ml.so.1) was not found"};
  }
  const std::string seen = fmt::format("{} NVLinks a GPU", fmt::join(widths, " to "));
  if (widths.size() == 1 && *widths.begin() > 0) return ok("links", seen);
  return {Health::warning, "links", seen, "some NVLinks are down or missing: nvidia-smi nvlink --status"};
}

Finding connections(const MachineState& machine, const Wanted& wanted) {
  const std::string what = "CUDA_DEVICE_MAX_CONNECTIONS";
  const bool shared = std::ssize(machine.cuda.gpus) < wanted.ranks;
  if (!machine.device_connections) return ok(what, "not set");
  const std::string seen = std::to_string(*machine.device_connections);
  if (*machine.device_connections > 1) return ok(what, seen);
  if (shared) return {Health::missing, what, seen, "ranks that share a GPU need more queues: unset it"};
  return {Health::warning, what, seen, "copies and kernels share one queue, which costs some overlap: unset it"};
}

/// Optional libraries: without one, a choice is missing.
std::vector<Finding> libraries(const cuda::CudaFacts& facts) {
  std::vector<Finding> findings;
  for (const auto& [name, choice] : {std::pair("cuBLASLt", "compute = library"), {"NCCL", "collective = library"}}) {
    const auto missing =
        std::ranges::find_if(facts.missing, [&](const std::string& text) { return text.starts_with(choice); });
    if (missing == facts.missing.end()) {
      findings.push_back(ok(name, name == std::string("NCCL") && !facts.nccl.empty() ? facts.nccl : "found"));
    } else {
      findings.push_back({Health::warning, name, *missing,
                          fmt::format("plans with {} are left out: pip install nvidia-{}-cu13, or LD_LIBRARY_PATH",
                                      choice, name == std::string("NCCL") ? "nccl" : "cublas")});
    }
  }
  return findings;
}

Finding shared_memory(const MachineState& machine, const Wanted& wanted) {
  const int64_t needed = kLeastSharedMemory * wanted.ranks;
  const std::string advice = "NCCL wants it: in a container --shm-size 1g";
  if (!machine.shared_memory_bytes) return {Health::warning, "/dev/shm", "there is none", advice};
  const std::string seen = fmt::format("{} free", in_bytes(*machine.shared_memory_bytes / kMiB * kMiB));
  if (*machine.shared_memory_bytes >= needed) return ok("/dev/shm", seen);
  return {Health::warning, "/dev/shm", seen, advice};
}

}  // namespace

std::vector<Finding> findings_of(const MachineState& machine, const Wanted& wanted) {
  std::vector<Finding> findings{cores(machine, wanted), memory(machine, wanted), descriptors(machine, wanted),
                                of_arenas("address space", machine.most_addresses, "-v", wanted),
                                of_arenas("file size", machine.most_file_bytes, "-f", wanted)};
  if (wanted.backend == "host") findings.push_back(gemm(machine));
  if (wanted.backend == "cuda") {
    findings.push_back(driver(machine.cuda));
    if (!machine.cuda.gpus.empty()) {
      findings.insert(findings.end(),
                      {gpus(machine.cuda, wanted), capability(machine.cuda, wanted), peers(machine.cuda, wanted),
                       links(machine.cuda, wanted), connections(machine, wanted), shared_memory(machine, wanted)});
      const std::vector<Finding> more = libraries(machine.cuda);
      findings.insert(findings.end(), more.begin(), more.end());
    }
  }
  findings.push_back(python(machine));
  return findings;
}

}  // namespace tilewire::cli
