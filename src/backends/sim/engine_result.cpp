// The results of a simulation: times, loads of links and memories, Trackers, the trace.
// Called by simulate.cpp.
#include <algorithm>
#include <tuple>

#include "backends/sim/engine.hpp"

namespace tilewire::sim {

Simulation EventEngine::result() && {
  const Time last = *std::ranges::max_element(rank_end_);
  Simulation result{.total_ns = static_cast<double>(last) / kPsPerNs, .events = num_stops_};
  for (const Time end : rank_end_) result.rank_ns.push_back(static_cast<double>(end) / kPsPerNs);
  const auto share = [&](double ns) { return last > 0 ? ns * kPsPerNs / static_cast<double>(last) : 0.0; };
  const auto busy = [&](int resource) { return share(flows_.used_ns()[resource]); };
  const std::vector<Edge>& edges = costs_.network().edges();
  for (int i = 0; i < std::ssize(edges); ++i) {
    if (costs_.link_bytes()[i] == 0) continue;
    result.links.push_back({edges[i].from, edges[i].to, costs_.link_bytes()[i], busy(costs_.link_resource(i))});
  }
  result.memory = costs_.memory();
  for (int i = 0; i < std::ssize(result.memory); ++i) result.memory[i].busy = busy(costs_.memory_resource(i));
  for (const TrackerTable& tracker : trackers_) {
    result.most_tracked = std::max(result.most_tracked, tracker.most());
    result.not_tracked += tracker.without_room();
  }
  for (int i = 0; i < std::ssize(controllers_); ++i) result.memory[i].busy = share(controllers_[i].busy_ns());
  for (const double ns : costs_.units_ns()) result.units_busy.push_back(share(ns));
  for (TraceEvent& event : trace_) {
    for (int64_t* time : {&event.taken_ns, &event.start_ns, &event.end_ns}) *time = (*time + 500) / 1000;
  }
  std::ranges::sort(trace_, {}, [](const TraceEvent& e) { return std::tuple(e.lane, e.taken_ns, e.task); });
  result.trace.events = std::move(trace_);
  return result;
}

}  // namespace tilewire::sim
