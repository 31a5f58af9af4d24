// Cores that a process may use: its affinity mask and the CPU quotas of its control groups.
// Used by the thread pools of host ranks and by machine.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tilewire {

/// Limit of the CPU time of all processes in a control group.
struct CpuQuota {
  std::string group;  ///< device and inode of the group's folder: unique in all namespaces
  double cores = 0;   ///< CPU seconds per second

  bool operator==(const CpuQuota&) const = default;
};

struct Cores {
  std::vector<int> mask;         ///< numbers of the cores, ascending
  std::vector<CpuQuota> quotas;  ///< of the process's control group and of its parents

  bool operator==(const Cores&) const = default;
};

/// Cores of the calling thread's affinity mask, ascending; at least one.
[[nodiscard]] std::vector<int> allowed_cores();
/// CPU quotas of this process, from control groups of versions 1 and 2. Reads the system's files below `root`. Files
/// that cannot be read set no limit.
[[nodiscard]] std::vector<CpuQuota> cpu_quotas(const std::string& root = "");
/// Affinity mask and quotas of the calling thread.
[[nodiscard]] Cores my_cores();

/// Number of cores that `rank` may use, at least 1. `ranks` has the cores of all ranks. A core, or a quota, that n
/// ranks have counts 1/n for each. The sum over cores is rounded down, a quota is rounded up.
[[nodiscard]] int share_of_cores(std::span<const Cores> ranks, int rank);

/// Encode cores for a message to other ranks, and decode them.
[[nodiscard]] std::string encode_cores(const Cores& cores);
[[nodiscard]] Cores decode_cores(const std::string& text);

/// Computes a rank's share repeatedly, and caches the slow parts.
class CoreShare {
 public:
  /// This rank's message to all ranks: its mask at this moment, and its quotas at the first call.
  [[nodiscard]] std::string mine();
  /// The share of `rank`, given the messages of all ranks; computed anew only if a message has changed.
  [[nodiscard]] int of(const std::vector<std::string>& ranks, int rank);

 private:
  std::optional<std::vector<CpuQuota>> quotas_;
  std::vector<std::string> told_;
  int share_ = 1;
};

}  // namespace tilewire
