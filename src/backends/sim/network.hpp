// The links of a machine and the way from one device to another.
// Used by costs.cpp, the engine, simulate.cpp, collectives.cpp, what reads machines, and tests.
#pragma once

#include <vector>

#include "tilewire/sim/machine.hpp"

namespace tilewire::sim {

inline constexpr int kMostDevices = 1024;  ///< of a machine

/// One direction of one link. Vertices are devices, then switches.
struct Edge {
  int from = 0;
  int to = 0;
  double bandwidth_GBps = 0;
  double latency_ns = 0;
};

/// Whether devices pass on what is for others.
[[nodiscard]] constexpr bool passes_on(Topology topology) {
  return topology == Topology::ring || topology == Topology::torus2d;
}

/// Devices by dimension: of a torus its rows, then its columns, otherwise all of them as one group of one dimension.
[[nodiscard]] std::vector<std::vector<std::vector<int>>> groups_of(const Links& links);

class Network {
 public:
  explicit Network(const Links& links);

  [[nodiscard]] const std::vector<Edge>& edges() const { return edges_; }
  /// Edges from one device to another, in order; none where they are the same.
  [[nodiscard]] std::vector<int> route(int from, int to) const;
  [[nodiscard]] double latency_ns(const std::vector<int>& route) const;

 private:
  int add(int from, int to, double bandwidth_GBps, double latency_ns);
  void add_ring(const std::vector<int>& devices);
  void add_pairs(const std::vector<int>& devices);
  /// Next device from `at` to `to` along a ring of `size`, both counted in it.
  static int step(int at, int to, int size);
  [[nodiscard]] int edge(int from, int to) const;

  Links links_;
  int num_devices_ = 0;
  std::vector<Edge> edges_;
  std::vector<std::vector<int>> out_;  ///< by vertex: its edges
};

}  // namespace tilewire::sim
