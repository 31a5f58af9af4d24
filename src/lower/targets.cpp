// The presets of targets.
// Called by backends, the command line and tests.
#include <algorithm>
#include <vector>

#include "core/text.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire {

Target host_target() { return {.name = "host"}; }

Target gpu_target(const std::string& kind, int ranks, int sms) {
  return {.name = fmt::format("{}x{}", kind, ranks), .ranks = ranks, .sms = sms, .copy_engines = 3, .streams = true};
}

int sms_for_clusters(const Target& target, int ctas) {
  if (ctas > 1 && !target.streams) return target.sms / 2 * 2;
  const bool known = ctas > 1 && ctas < std::ssize(target.cluster_sms);
  return known ? std::min(target.sms, target.cluster_sms[ctas]) : target.sms;
}

std::span<const Target> targets() {
  static const std::vector<Target> kTargets = [] {
    constexpr int kHopperSms = 132;
    std::vector<Target> all{host_target()};
    for (const char* kind : {"h100", "h200"}) {
      for (const int ranks : {1, 2, 4, 8}) {
        all.push_back(gpu_target(kind, ranks, kHopperSms));
        // Reported by the driver for two H200; other chips have GPCs of other sizes.
        all.back().cluster_sms = {0, 132, 132, 117, 120, 110, 102, 105, 120};
      }
    }
    return all;
  }();
  return kTargets;
}

const Target& find_target(const std::string& name) {
  std::string known;
  for (const Target& target : targets()) {
    if (target.name == name) return target;
    known += (known.empty() ? "" : ", ") + target.name;
  }
  fail(ErrorKind::invalid_input, "unknown target '{}'; known: {}", name, known);
}

Team team_of(const Target& target, int num_ranks) {
  require(num_ranks >= 1, "{} ranks: want at least 1", num_ranks);
  require(target.ranks == 0 || target.ranks == num_ranks, "target {} has {} ranks, not {}", target.name, target.ranks,
          num_ranks);
  Team team{.num_ranks = num_ranks};
  if (target.sms > 0)
    team.devices.assign(static_cast<size_t>(num_ranks), {.copy_engines = target.copy_engines, .sms = target.sms});
  return team;
}

}  // namespace tilewire
