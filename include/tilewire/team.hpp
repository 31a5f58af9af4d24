// The ranks that work together and what joins each pair of them: plain data.
// Read by schedules (routes), the checker (reachability, traffic) and the simulator (times).
#pragma once

#include <vector>

namespace tilewire {

/// How one rank's engines can address another rank's memory.
enum class Reach {
  load_store,  ///< loads and stores, and copies
  copy,        ///< copy engines only
  network,     ///< network puts only
  none,        ///< not at all
};

/// One rank's device.
struct Device {
  int node = 0;          ///< host that it sits in
  int copy_engines = 1;  ///< copies that can run at once
  int sms = 0;           ///< multiprocessors of a GPU that are the rank's; 0 = it is no GPU

  bool operator==(const Device&) const = default;
};

/// What joins one ordered pair of ranks.
struct Link {
  Reach reach = Reach::load_store;
  double bandwidth_GBps = 0;  ///< one direction, decimal GB/s; 0 = unknown
  double latency_us = 0;

  bool operator==(const Link&) const = default;
};

/// A group of ranks. A plan holds the team that it was made for, with `rank` 0: it serves all ranks.
struct Team {
  int num_ranks = 1;
  int rank = 0;                   ///< mine
  std::vector<Device> devices{};  ///< one per rank; empty = all on one node
  std::vector<Link> links{};      ///< [from * num_ranks + to]; empty = load and store everywhere

  bool operator==(const Team&) const = default;
};

/// The link that carries what `from` sends or what `to` loads from `from`.
[[nodiscard]] inline Link link_between(const Team& team, int from, int to) {
  return team.links.empty() ? Link{} : team.links[static_cast<size_t>(from) * team.num_ranks + to];
}

}  // namespace tilewire
