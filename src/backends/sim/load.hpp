// Computes the duration of a piece of work alone, and its demands, from its use of each resource.
// Used by costs.cpp and library_costs.cpp.
#pragma once

#include <algorithm>

#include "backends/sim/costs.hpp"

namespace tilewire::sim {

class Costs::Load {
 public:
  explicit Load(const Machine& machine) : machine_(machine) {}

  /// Use all of `resource` for `full_ns`. Uses run in parallel; the longest one is the duration.
  void use(int resource, double full_ns, int sender = -1) {
    for (Demand& demand : demands_) {
      if (demand.resource != resource || demand.sender != sender) continue;
      demand.share += full_ns;
      return;
    }
    demands_.push_back({resource, full_ns, sender});
  }
  void take_at_least(double ns) { least_ns_ = std::max(least_ns_, ns); }
  void delay_until_there(double latency_ns) { latency_ns_ = std::max(latency_ns_, latency_ns); }
  /// Reads from a peer start with a request, which takes `latency_ns`.
  void request(double latency_ns) { request_ns_ = std::max(request_ns_, latency_ns); }

  /// Bytes that one compute unit moves, to or from a peer or its own memory.
  void add_unit_bytes(int64_t bytes, bool to_peer) {
    const double own = machine_.memory.unit_bandwidth_GBps;
    const double peer = machine_.links.unit_bandwidth_GBps;
    const double rate = to_peer && peer > 0 ? peer : own;
    double& ns = to_peer ? peer_ns_ : own_ns_;
    if (rate > 0) ns += static_cast<double>(bytes) / rate;
    take_at_least(ns);
  }

  /// With a memory controller: an access at the start, and an access after all sent data have arrived.
  void access(const Access& access) { merge(accesses_, access); }
  void access_there(const Access& access) { merge(landing_, access); }
  [[nodiscard]] const std::vector<Access>& landing() const { return landing_; }

  [[nodiscard]] double latency_ns() const { return latency_ns_; }
  [[nodiscard]] double request_ns() const { return request_ns_; }
  /// The duration if the work is alone.
  [[nodiscard]] double least_ns() const {
    double ns = least_ns_;
    for (const Demand& demand : demands_) ns = std::max(ns, full_ns(demand.resource));
    return ns;
  }
  [[nodiscard]] Phase phase(double delay_ns) const {
    Phase phase{.delay_ns = delay_ns, .work_ns = least_ns(), .accesses = accesses_};
    for (Demand demand : demands_) {
      if (demand.share == 0) continue;
      demand.share /= phase.work_ns;
      phase.demands.push_back(demand);
    }
    return phase;
  }

 private:
  static void merge(std::vector<Access>& list, const Access& access) {
    for (Access& each : list) {
      if (each.device != access.device || each.stream != access.stream || each.kind != access.kind) continue;
      each.bytes += access.bytes;
      return;
    }
    list.push_back(access);
  }
  /// Sum over all senders.
  [[nodiscard]] double full_ns(int resource) const {
    double sum = 0;
    for (const Demand& demand : demands_) sum += demand.resource == resource ? demand.share : 0;
    return sum;
  }

  const Machine& machine_;
  std::vector<Demand> demands_;  ///< share: ns of full use
  std::vector<Access> accesses_;
  std::vector<Access> landing_;
  double least_ns_ = 0;
  double latency_ns_ = 0;
  double request_ns_ = 0;
  double own_ns_ = 0;   ///< one unit, its own memory
  double peer_ns_ = 0;  ///< one unit, memory of peers; in parallel with own_ns_
};

}  // namespace tilewire::sim
