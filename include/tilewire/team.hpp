// A team: the ranks, their devices, and the link between each pair of ranks. Plain data.
// Read by schedules (routes), the checker (reachability, traffic) and the simulator (times).
#pragma once

#include <vector>

namespace tilewire {

/// How one rank can address another rank's memory.
enum class Reach {
  load_store,  ///< loads, stores and copies
  copy,        ///< copy engines only
  network,     ///< network puts only
  none,        ///< not addressable
};

/// One rank's device.
struct Device {
  int node = 0;          ///< the rank's host
  int copy_engines = 1;  ///< copies at the same time
  int sms = 0;           ///< SMs of a GPU that the rank may use; 0 = not a GPU

  bool operator==(const Device&) const = default;
};

/// The link of one ordered pair of ranks.
struct Link {
  Reach reach = Reach::load_store;
  double bandwidth_GBps = 0;  ///< one direction, decimal GB/s; 0 = unknown
  double latency_us = 0;

  bool operator==(const Link&) const = default;
};

/// All ranks. The team of a plan has `rank` 0, because the plan is for all ranks.
struct Team {
  int num_ranks = 1;
  int rank = 0;                   ///< this rank
  std::vector<Device> devices{};  ///< one per rank; empty = all on one node
  std::vector<Link> links{};      ///< [from * num_ranks + to]; empty = load and store everywhere

  bool operator==(const Team&) const = default;
};

/// The link that carries data from `from` to `to`: stores by `from`, or loads by `to`.
[[nodiscard]] inline Link link_between(const Team& team, int from, int to) {
  return team.links.empty() ? Link{} : team.links[static_cast<size_t>(from) * team.num_ranks + to];
}

}  // namespace tilewire
