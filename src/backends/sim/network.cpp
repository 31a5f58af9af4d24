// Links and routes of every topology.
// Called by costs.cpp, the engine, simulate.cpp, collectives.cpp and tests.
#include "backends/sim/network.hpp"

#include <functional>
#include <numeric>

#include "core/text.hpp"

namespace tilewire::sim {

namespace {

std::vector<int> all_devices(const Links& links) {
  std::vector<int> all(std::accumulate(links.dims.begin(), links.dims.end(), 1, std::multiplies<>()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

std::vector<std::vector<std::vector<int>>> groups_of(const Links& links) {
  const std::vector<int> all = all_devices(links);
  if (links.topology != Topology::torus2d) return {{all}};
  const int rows = links.dims[0];
  const int columns = links.dims[1];
  std::vector<std::vector<std::vector<int>>> groups(2);
  for (int row = 0; row < rows; ++row) {
    groups[0].emplace_back(all.begin() + row * columns, all.begin() + (row + 1) * columns);
  }
  for (int column = 0; column < columns; ++column) {
    std::vector<int>& group = groups[1].emplace_back();
    for (int row = 0; row < rows; ++row) group.push_back(row * columns + column);
  }
  return groups;
}

Network::Network(const Links& links) : links_(links) {
  const std::vector<int> all = all_devices(links);
  num_devices_ = static_cast<int>(all.size());
  out_.resize(num_devices_ + 1);
  const auto add_to_switch = [&](double bandwidth_GBps, double latency_ns) {
    for (const int device : all) {
      add(device, num_devices_, bandwidth_GBps, latency_ns);
      add(num_devices_, device, bandwidth_GBps, latency_ns);
    }
  };
  switch (links.topology) {
    case Topology::ring:
    case Topology::torus2d:
      for (const std::vector<std::vector<int>>& dimension : groups_of(links)) {
        for (const std::vector<int>& devices : dimension) add_ring(devices);
      }
      break;
    case Topology::fully_connected:
      add_pairs(all);
      break;
    case Topology::switched:
      add_to_switch(links.bandwidth_GBps, links.latency_ns);
      break;
    case Topology::two_level:
      for (int node = 0; node < links.dims[0]; ++node) {
        add_pairs({all.begin() + node * links.dims[1], all.begin() + (node + 1) * links.dims[1]});
      }
      add_to_switch(links.between_bandwidth_GBps, links.between_latency_ns);
      break;
  }
}

int Network::add(int from, int to, double bandwidth_GBps, double latency_ns) {
  out_[from].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, to, bandwidth_GBps, latency_ns});
  return out_[from].back();
}

// NOTE: two devices have one link in each direction, not two.
void Network::add_ring(const std::vector<int>& devices) {
  const int size = static_cast<int>(devices.size());
  for (int i = 0; i < size && size > 1; ++i) {
    const int next = (i + 1) % size;
    add(devices[i], devices[next], links_.bandwidth_GBps, links_.latency_ns);
    if (size > 2) add(devices[next], devices[i], links_.bandwidth_GBps, links_.latency_ns);
  }
}

void Network::add_pairs(const std::vector<int>& devices) {
  for (const int from : devices) {
    for (const int to : devices) {
      if (from != to) add(from, to, links_.bandwidth_GBps, links_.latency_ns);
    }
  }
}

int Network::step(int at, int to, int size) {
  const int ahead = (to - at + size) % size;
  return ahead * 2 <= size ? (at + 1) % size : (at + size - 1) % size;
}

int Network::edge(int from, int to) const {
  for (const int index : out_[from]) {
    if (edges_[index].to == to) return index;
  }
  fail(ErrorKind::internal, "no link from {} to {}", from, to);
}

std::vector<int> Network::route(int from, int to) const {
  std::vector<int> route;
  const int width = links_.topology == Topology::torus2d || links_.topology == Topology::two_level ? links_.dims[1] : 0;
  for (int at = from; at != to;) {
    int next = to;
    if (links_.topology == Topology::ring) next = step(at, to, num_devices_);
    if (links_.topology == Topology::switched && at < num_devices_) next = num_devices_;
    if (links_.topology == Topology::two_level && at < num_devices_ && at / width != to / width) next = num_devices_;
    if (links_.topology == Topology::torus2d) {
      next = at % width != to % width ? at / width * width + step(at % width, to % width, width)
                                      : step(at / width, to / width, links_.dims[0]) * width + at % width;
    }
    route.push_back(edge(at, next));
    at = next;
  }
  return route;
}

double Network::latency_ns(const std::vector<int>& route) const {
  double sum = 0;
  for (const int index : route) sum += edges_[index].latency_ns;
  return sum;
}

}  // namespace tilewire::sim
