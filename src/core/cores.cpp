// Reads affinity masks and CPU quotas, and computes the ranks' shares of both.
// Called by host pools and machine.cpp.
#include "core/cores.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <sstream>

#include "core/json_text.hpp"
#include "core/system_call.hpp"
#include "core/text.hpp"
#include "core/text_file.hpp"

namespace tilewire {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

/// Decode a path of mountinfo, which writes blanks, tabs and backslashes as octal numbers: \040.
std::string plain_path(const std::string& written) {
  std::string path;
  for (size_t i = 0; i < written.size(); ++i) {
    const bool octal = written[i] == '\\' && i + 3 < written.size();
    path += octal ? static_cast<char>(std::strtol(written.substr(i + 1, 3).c_str(), nullptr, 8)) : written[i];
    if (octal) i += 3;
  }
  return path;
}

/// A mounted control-group hierarchy that can limit CPU time.
struct Mount {
  bool unified = false;  ///< version 2
  std::string top;       ///< the group that is mounted at `folder`
  std::string folder;
};

/// Parse a line of mountinfo: "31 23 0:28 TOP FOLDER rw - cgroup2 cgroup2 rw,OPTIONS".
std::optional<Mount> mount_of(const std::string& line) {
  const std::vector<std::string> words = split(line, ' ');
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (dash - words.begin() < 5 || words.end() - dash < 4) return {};
  const bool unified = dash[1] == "cgroup2";
  const std::vector<std::string> options = split(dash[3], ',');
  const bool cpu = dash[1] == "cgroup" && std::find(options.begin(), options.end(), "cpu") != options.end();
  if (!unified && !cpu) return {};
  return Mount{unified, plain_path(words[3]), plain_path(words[4])};
}

/// Path of this process's group in the unified hierarchy, or in version 1's CPU hierarchy; lines are
/// "1:cpu,cpuacct:/PATH".
std::optional<std::string> group_of(const std::vector<std::string>& lines, bool unified) {
  for (const std::string& line : lines) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::vector<std::string> controllers = split(names, ',');
    const bool cpu = std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end();
    if (unified ? names.empty() : cpu) return line.substr(second + 1);
  }
  return {};
}

/// The part of `group`'s path below the mount: "" or "/a/b"; nothing if the group is outside of the mount.
std::optional<std::string> path_below(const Mount& mount, const std::string& group) {
  const std::string top = mount.top == "/" ? "" : mount.top;
  const std::string path = group == "/" ? "" : group;
  if (!path.starts_with(top) || path.find("/..") != std::string::npos) return {};
  const std::string below = path.substr(top.size());
  if (!below.empty() && below[0] != '/') return {};
  return below;
}

std::vector<std::string> lines_of(const std::string& file) {
  std::istringstream in(read_text_file(file).text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Cores that a group's own limit allows, from "QUOTA PERIOD" in microseconds; nothing if QUOTA is "max" or -1.
std::optional<double> limit_of(const std::string& folder, bool unified) {
  const auto text = [&](const char* name) { return read_text_file(folder + name).text + " "; };
  double quota = 0;
  double period = 0;
  std::istringstream(unified ? text("/cpu.max") : text("/cpu.cfs_quota_us") + text("/cpu.cfs_period_us")) >> quota >>
      period;
  if (quota > 0 && period > 0) return quota / period;
  return {};
}

}  // namespace

std::vector<int> allowed_cores() {
  constexpr size_t kMost = size_t{1} << 20;
  for (size_t most = CPU_SETSIZE; most <= kMost; most *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(most);
    std::vector<cpu_set_t> set(bytes / sizeof(cpu_set_t));
    // NOTE: the kernel refuses a set with fewer bits than the machine has cores.
    if (!system_call([&] { return sched_getaffinity(0, bytes, set.data()); }).ok()) continue;
    std::vector<int> cores;
    for (size_t core = 0; core < most; ++core) {
      if (CPU_ISSET_S(core, bytes, set.data())) cores.push_back(static_cast<int>(core));
    }
    if (!cores.empty()) return cores;
  }
  std::vector<int> all(static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<CpuQuota> cpu_quotas(const std::string& root) {
  std::vector<CpuQuota> quotas;
  const std::vector<std::string> groups = lines_of(root + "/proc/self/cgroup");
  for (const std::string& line : lines_of(root + "/proc/self/mountinfo")) {
    const auto mount = mount_of(line);
    const auto group = mount ? group_of(groups, mount->unified) : std::nullopt;
    const auto below = group ? path_below(*mount, *group) : std::nullopt;
    if (!below) continue;
    std::string path = *below;
    while (true) {
      const std::string folder = root + mount->folder + path;
      struct stat status {};
      const auto limit = limit_of(folder, mount->unified);
      if (limit && system_call([&] { return stat(folder.c_str(), &status); }).ok()) {
        const CpuQuota quota{fmt::format("{}:{}", status.st_dev, status.st_ino), *limit};
        // Skip groups seen before: a hierarchy may be mounted at several places.
        if (std::find(quotas.begin(), quotas.end(), quota) == quotas.end()) quotas.push_back(quota);
      }
      if (path.empty()) break;
      path.erase(path.rfind('/'));
    }
  }
  return quotas;
}

Cores my_cores() { return {allowed_cores(), cpu_quotas()}; }

int share_of_cores(std::span<const Cores> ranks, int rank) {
  constexpr double kRounding = 1e-6;
  std::vector<int> holders;
  for (const Cores& cores : ranks) {
    for (const int core : cores.mask) {
      if (core >= std::ssize(holders)) holders.resize(static_cast<size_t>(core) + 1);
      ++holders[core];
    }
  }
  double share = 0;
  for (const int core : ranks[rank].mask) share += 1.0 / holders[core];
  share = std::floor(share + kRounding);
  for (const CpuQuota& quota : ranks[rank].quotas) {
    const auto holds = [&](const Cores& cores) {
      return std::any_of(cores.quotas.begin(), cores.quotas.end(),
                         [&](const CpuQuota& theirs) { return theirs.group == quota.group; });
    };
    const auto sharers = static_cast<double>(std::count_if(ranks.begin(), ranks.end(), holds));
    share = std::min(share, std::ceil(quota.cores / sharers - kRounding));
  }
  return std::max(1, static_cast<int>(share));
}

std::string encode_cores(const Cores& cores) {
  // Encode runs of cores: [first, count].
  nlohmann::json runs = nlohmann::json::array();
  for (const int core : cores.mask) {
    if (!runs.empty() && runs.back()[0].get<int>() + runs.back()[1].get<int>() == core) {
      runs.back()[1] = runs.back()[1].get<int>() + 1;
    } else {
      runs.push_back({core, 1});
    }
  }
  nlohmann::json quotas = nlohmann::json::array();
  for (const CpuQuota& quota : cores.quotas) quotas.push_back({quota.group, quota.cores});
  return json_text({runs, quotas});
}

Cores decode_cores(const std::string& text) {
  const nlohmann::json json = parse_json(text, "the cores of a rank");
  Cores cores;
  for (const nlohmann::json& run : json[0]) {
    for (int i = 0; i < run[1].get<int>(); ++i) cores.mask.push_back(run[0].get<int>() + i);
  }
  for (const nlohmann::json& quota : json[1]) cores.quotas.push_back({quota[0], quota[1]});
  return cores;
}

std::string CoreShare::mine() {
  if (!quotas_) quotas_ = cpu_quotas();
  return encode_cores({allowed_cores(), *quotas_});
}

int CoreShare::of(const std::vector<std::string>& ranks, int rank) {
  if (ranks == told_) return share_;
  std::vector<Cores> cores;
  for (const std::string& text : ranks) cores.push_back(decode_cores(text));
  share_ = share_of_cores(cores, rank);
  told_ = ranks;
  return share_;
}

}  // namespace tilewire
