// Adds signals for the order that LL data and stages imply.
// Used by the checker, the simulator, and backends.
#include "core/implied_order.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/ll.hpp"
#include "core/regions_by_row.hpp"

namespace tilewire {
namespace {

/// A buffer on a rank: {rank, buffer}.
using BufferOfRank = std::pair<int, int>;

BufferOfRank buffer_of(const Region& region) { return {region.rank, region.buffer}; }

/// Position of a task in a plan.
struct Where {
  size_t lane = 0;
  size_t task = 0;
};

/// Accesses of one buffer on one rank: writes, and reads of polling tasks.
struct Uses {
  RegionsByRow<Where> writes{};
  std::vector<std::pair<Region, Where>> reads{};
};

std::map<BufferOfRank, Uses> uses_of(const Plan& plan) {
  std::map<BufferOfRank, Uses> uses;
  for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    for (size_t index = 0; index < plan.lanes[lane].tasks.size(); ++index) {
      const Task& task = plan.lanes[lane].tasks[index];
      for (const Write& write : task.writes) {
        if (is_ll(plan, write.to)) uses[buffer_of(write.to)].writes.add(write.to, {lane, index});
      }
      if (!polls(plan, plan.lanes[lane], task)) continue;
      for (const Region& read : task.reads) uses[buffer_of(read)].reads.push_back({read, {lane, index}});
    }
  }
  for (auto& [place, each] : uses) each.writes.sort();
  return uses;
}

/// Number of tasks that can run first in a lane, which is also the number that can end last: 1 of a serial lane, all of
/// a pool.
size_t at_its_ends(const Lane& lane) {
  return is_serial(lane.engine) ? std::min<size_t>(1, lane.tasks.size()) : lane.tasks.size();
}

}  // namespace

bool has_implied_order(const Plan& plan) { return uses_ll(plan) || has_stages(plan); }

bool has_stages(const Plan& plan) {
  return std::ranges::any_of(plan.lanes, [](const Lane& lane) { return lane.stage > 0; });
}

Plan with_ll_signals(Plan plan) {
  const int first = num_signals(plan);
  int next = first;
  for (const auto& [place, uses] : uses_of(plan)) {
    for (const auto& [read, reader] : uses.reads) {
      const Signal there{place.first, next};
      int64_t writers = 0;
      uses.writes.for_each_overlap(read, [&](const Region&, const Where& writer) {
        plan.lanes[writer.lane].tasks[writer.task].posts.push_back({there});
        ++writers;
      });
      if (writers == 0) continue;
      plan.lanes[reader.lane].tasks[reader.task].waits.push_back({there, writers});
      ++next;
    }
  }
  if (next > first) plan.signals.push_back({"LL data", first, next - first});
  return plan;
}

Plan with_stage_signals(Plan plan) {
  int most = 0;
  for (const Lane& lane : plan.lanes) most = std::max(most, lane.stage);
  const int first = num_signals(plan);
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    for (int stage = 1; stage <= most; ++stage) {
      const Signal over{rank, first + stage - 1};
      const auto begins = [&](const Lane& lane) { return lane.rank == rank && lane.stage == stage; };
      if (std::ranges::none_of(plan.lanes, begins)) continue;
      int64_t ends = 0;
      for (Lane& lane : plan.lanes) {
        if (lane.rank != rank || lane.stage >= stage) continue;
        for (Task& task : std::span(lane.tasks).last(at_its_ends(lane))) task.posts.push_back({over}), ++ends;
      }
      for (Lane& lane : plan.lanes) {
        if (!begins(lane) || ends == 0) continue;
        for (Task& task : std::span(lane.tasks).first(at_its_ends(lane))) task.waits.push_back({over, ends});
      }
    }
  }
  if (most > 0) plan.signals.push_back({"earlier stages", first, most});
  return plan;
}

Plan with_all_signals(Plan plan) { return with_stage_signals(with_ll_signals(std::move(plan))); }

}  // namespace tilewire
