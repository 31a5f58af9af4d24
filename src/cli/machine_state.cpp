// Reads the facts of this machine that `tilewire doctor` judges.
// Called by doctor.cpp.
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <memory>

#include "backends/host/gemm.hpp"
#include "cli/symptoms.hpp"
#include "core/machine.hpp"
#include "core/text_file.hpp"
#include "tilewire/env.hpp"

namespace tilewire::cli {
namespace {

std::optional<int64_t> limit_of(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

/// The memory limit of this process's cgroup, version 2 or 1; nothing if there is none.
std::optional<int64_t> cgroup_memory() {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const TextFile file = read_text_file(path);
    int64_t bytes = 0;  // "max" is no number
    if (file.call.ok() &&
        std::from_chars(file.text.data(), file.text.data() + file.text.size(), bytes).ec == std::errc())
      return bytes;
  }
  return std::nullopt;
}

std::optional<int64_t> free_shared_memory() {
  struct statvfs found {};
  if (statvfs("/dev/shm", &found) != 0) return std::nullopt;
  return static_cast<int64_t>(found.f_bavail) * static_cast<int64_t>(found.f_frsize);
}

/// The first line that a command prints; empty if it fails.
std::string first_line_of(const char* command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command, "r"), pclose);
  std::array<char, 256> line{};
  if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return {};
  std::string text = line.data();
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

MachineState machine_state(bool with_gpus) {
  MachineState machine;
  machine.cores = usable_cores();
  machine.most_descriptors = limit_of(RLIMIT_NOFILE);
  machine.most_addresses = limit_of(RLIMIT_AS);
  machine.most_file_bytes = limit_of(RLIMIT_FSIZE);
  machine.memory_bytes = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE);
  if (const auto limit = cgroup_memory(); limit && *limit < machine.memory_bytes) {
    machine.memory_bytes = *limit;
    machine.memory_of_cgroup = true;
  }
  machine.shared_memory_bytes = free_shared_memory();
  machine.gemm = host::host_gemm_library();
  machine.python_package =
      first_line_of("python3 -c 'import importlib.metadata as m; print(m.version(\"tilewire\"))' 2>/dev/null");
  machine.device_connections = env::device_connections();
  if (with_gpus) machine.cuda = cuda::cuda_facts();
  return machine;
}

}  // namespace tilewire::cli
