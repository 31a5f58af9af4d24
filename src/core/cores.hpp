// Cores that a process may use: its affinity mask and the CPU quotas of its control groups.
// Used by the pools of host ranks, which share cores, and by machine.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tilewire {

/// CPU time that all processes of a control group may use together.
struct CpuQuota {
  std::string group;  ///< device and inode of the group's folder: the same in every namespace
  double cores = 0;   ///< CPU seconds in a second

  bool operator==(const CpuQuota&) const = default;
};

struct Cores {
  std::vector<int> mask;         ///< numbers of the cores, ascending
  std::vector<CpuQuota> quotas;  ///< of the process's control group and of those around it

  bool operator==(const Cores&) const = default;
};

/// Cores of the calling thread's affinity mask, ascending; at least one.
[[nodiscard]] std::vector<int> allowed_cores();
/// Quotas that hold for this process, of control groups of versions 1 and 2. The system's files are those under `root`.
/// What cannot be read sets no limit.
[[nodiscard]] std::vector<CpuQuota> cpu_quotas(const std::string& root = "");
/// Both, of the calling thread.
[[nodiscard]] Cores my_cores();

/// How many cores rank `rank` may use, at least 1, where `ranks` are those of all ranks: a core counts 1 / number of
/// ranks whose mask holds it, and so does a quota; what masks give is rounded down, what a quota gives up.
[[nodiscard]] int share_of_cores(std::span<const Cores> ranks, int rank);

/// Cores as a message, and back.
[[nodiscard]] std::string encode_cores(const Cores& cores);
[[nodiscard]] Cores decode_cores(const std::string& text);

/// A rank's share, found again and again: what takes long is done once, as long as nothing has changed.
class CoreShare {
 public:
  /// What this rank is to tell all ranks: its mask now, and its quotas as they were the first time.
  [[nodiscard]] std::string mine();
  /// The share of rank `rank`, where the ranks have told `ranks`.
  [[nodiscard]] int of(const std::vector<std::string>& ranks, int rank);

 private:
  std::optional<std::vector<CpuQuota>> quotas_;
  std::vector<std::string> told_;
  int share_ = 1;
};

}  // namespace tilewire
