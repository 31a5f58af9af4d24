// What `transport = ll` changes on GPUs: which regions are flagged, which signals nobody needs then, and what a plan
// must keep to. Used where plans are refused, where workspace is made, and where a plan becomes records.
#include "backends/cuda/ll_protocol.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/regions.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {
namespace {

bool reads_flags(const Plan& plan, const Task& task) {
  return std::ranges::any_of(task.reads, [&](const Region& read) { return is_ll(plan, read); });
}

/// Whether a task looks at all that it reads.
bool polls(const Plan& plan, const Lane& lane, const Task& task) {
  return !is_serial(lane.engine) && (task.kind == TaskKind::copy || task.kind == TaskKind::reduce) &&
         !task.reads.empty() && std::ranges::all_of(task.reads, [&](const Region& read) {
           return is_ll(plan, read) && read.rank == lane.rank;
         });
}

/// Ranks that post to a signal.
using Posters = std::map<size_t, std::vector<int>>;

Posters posters_of(const Plan& plan) {
  Posters posters;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      for (const Post& post : task.posts) posters[signal_id(plan, post.signal)].push_back(lane.rank);
    }
  }
  return posters;
}

/// Whether a task waits until `peer` is ready.
bool awaits(const Plan& plan, const Task& task, int peer, const Posters& posters) {
  return std::ranges::any_of(task.waits, [&](const Wait& wait) {
    const auto found = posters.find(signal_id(plan, wait.signal));
    return wait.purpose == Purpose::ready && found != posters.end() &&
           std::ranges::all_of(found->second, [&](int rank) { return rank == peer; });
  });
}

/// Two reads of one element, or nothing.
std::optional<std::string> read_twice(const Plan& plan, std::vector<const Region*> reads) {
  std::ranges::sort(reads, {}, [](const Region* read) { return read->row; });
  std::vector<const Region*> open;
  for (const Region* read : reads) {
    std::erase_if(open, [&](const Region* other) { return other->row + other->rows <= read->row; });
    for (const Region* other : open) {
      if (!overlap(*read, *other)) continue;
      return fmt::format("{} of rank {} is read twice, from row {} column {} on", plan.buffers[read->buffer].name,
                         read->rank, read->row, read->col);
    }
    open.push_back(read);
  }
  return std::nullopt;
}

}  // namespace

bool is_ll(const Plan& plan, const Region& region) { return plan.buffers[region.buffer].ll; }

bool uses_ll(const Plan& plan) { return std::ranges::any_of(plan.buffers, &Buffer::ll); }

std::vector<bool> elided_signals(const Plan& whole) {
  std::vector<bool> looked_for(static_cast<size_t>(num_signals(whole)) * whole.team.num_ranks, false);
  if (!uses_ll(whole)) return looked_for;
  std::vector<bool> waited_for = looked_for;
  for (const Lane& lane : whole.lanes) {
    for (const Task& task : lane.tasks) {
      const bool by_data = polls(whole, lane, task);
      for (const Wait& wait : task.waits) {
        (by_data && wait.purpose == Purpose::data ? looked_for : waited_for)[signal_id(whole, wait.signal)] = true;
      }
    }
  }
  for (size_t id = 0; id < looked_for.size(); ++id) looked_for[id] = looked_for[id] && !waited_for[id];
  return looked_for;
}

std::optional<std::string> refuses_ll(const Plan& whole) {
  if (!uses_ll(whole)) return std::nullopt;
  const Posters posters = posters_of(whole);
  std::map<std::pair<int, int>, std::vector<const Region*>> reads;
  std::map<std::pair<int, int>, int64_t> unread;  // elements written but not read
  for (const Lane& lane : whole.lanes) {
    for (const Task& task : lane.tasks) {
      const bool adds = std::ranges::any_of(task.addends, [&](const Region& read) { return is_ll(whole, read); });
      if (adds || (reads_flags(whole, task) && !polls(whole, lane, task))) {
        return fmt::format("a {} of lane {} of rank {} cannot look at what it reads", to_string(task.kind), lane.name,
                           lane.rank);
      }
      for (const Region& read : task.reads) {
        if (!is_ll(whole, read)) continue;
        reads[{read.rank, read.buffer}].push_back(&read);
        unread[{read.rank, read.buffer}] -= read.rows * read.cols;
      }
      for (const Write& write : task.writes) {
        if (!is_ll(whole, write.to)) continue;
        const std::string& name = whole.buffers[write.to.buffer].name;
        if (write.mode != WriteMode::store) return fmt::format("{} is added to", name);
        if (write.to.rank != lane.rank && !awaits(whole, task, write.to.rank, posters)) {
          return fmt::format("rank {} writes {} of rank {}, whose readiness it does not wait for", lane.rank, name,
                             write.to.rank);
        }
        unread[{write.to.rank, write.to.buffer}] += write.to.rows * write.to.cols;
      }
    }
  }
  for (const auto& [place, elements] : unread) {
    if (elements == 0) continue;
    return fmt::format("{} of rank {}: {} more elements are written than read", whole.buffers[place.second].name,
                       place.first, elements);
  }
  for (auto& [place, some] : reads) {
    if (auto twice = read_twice(whole, std::move(some))) return twice;
  }
  return std::nullopt;
}

}  // namespace tilewire::cuda
