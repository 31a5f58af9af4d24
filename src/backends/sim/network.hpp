// The links of a machine, and routes between devices.
// Used by costs.cpp, the engine, simulate.cpp, collectives.cpp, machine_rules.cpp and tests.
#pragma once

#include <vector>

#include "tilewire/sim/machine.hpp"

namespace tilewire::sim {

inline constexpr int kMostDevices = 1024;  ///< devices of a machine

/// One direction of one link. Vertices are devices, then switches.
struct Edge {
  int from = 0;
  int to = 0;
  double bandwidth_GBps = 0;
  double latency_ns = 0;
};

/// Whether devices forward messages of other devices.
[[nodiscard]] constexpr bool passes_on(Topology topology) {
  return topology == Topology::ring || topology == Topology::torus2d;
}

/// Groups of devices by dimension: the rows of a torus, then its columns; for other topologies one group of all
/// devices.
[[nodiscard]] std::vector<std::vector<std::vector<int>>> groups_of(const Links& links);

class Network {
 public:
  explicit Network(const Links& links);

  [[nodiscard]] const std::vector<Edge>& edges() const { return edges_; }
  /// Edges from one device to another, in order; none if both are the same.
  [[nodiscard]] std::vector<int> route(int from, int to) const;
  [[nodiscard]] double latency_ns(const std::vector<int>& route) const;

 private:
  int add(int from, int to, double bandwidth_GBps, double latency_ns);
  void add_ring(const std::vector<int>& devices);
  void add_pairs(const std::vector<int>& devices);
  /// The device after `at` on the way to `to`, on a ring of `size` devices numbered from 0.
  static int step(int at, int to, int size);
  [[nodiscard]] int edge(int from, int to) const;

  Links links_;
  int num_devices_ = 0;
  std::vector<Edge> edges_;
  std::vector<std::vector<int>> out_;  ///< by vertex: its outgoing edges
};

}  // namespace tilewire::sim
