// Checks the rules of LL data (Buffer::ll).
// Called by check.cpp and by the cuda backend.
#include "check/ll.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/ll.hpp"
#include "core/regions.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::checking {
namespace {

/// A buffer on a rank: {rank, buffer}.
using Place = std::pair<int, int>;

Place place_of(const Region& region) { return {region.rank, region.buffer}; }

/// The ranks that post to a signal, by signal_id.
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

/// Whether a task waits for the ready handshake of `peer`.
bool awaits(const Plan& plan, const Task& task, int peer, const Posters& posters) {
  return std::ranges::any_of(task.waits, [&](const Wait& wait) {
    const auto found = posters.find(signal_id(plan, wait.signal));
    return wait.purpose == Purpose::ready && found != posters.end() &&
           std::ranges::all_of(found->second, [&](int rank) { return rank == peer; });
  });
}

/// Whether a task reads LL data without polling them.
bool reads_blindly(const Plan& plan, const Lane& lane, const Task& task) {
  const auto flagged = [&](const Region& read) { return is_ll(plan, read); };
  if (std::ranges::any_of(task.addends, flagged)) return true;
  if (std::ranges::any_of(task.epilogue,
                          [&](const EpilogueStep& step) { return step.operand && flagged(*step.operand); }))
    return true;
  return std::ranges::any_of(task.reads, flagged) && !polls(plan, lane, task);
}

/// The text of an element that is read twice, or nothing.
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

std::optional<std::string> refuses_write(const Plan& plan, const Lane& lane, const Task& task, const Write& write,
                                         const Posters& posters) {
  const Buffer& buffer = plan.buffers[write.to.buffer];
  const std::string& name = buffer.name;
  const int rank = lane.rank;
  // Copy engines and libraries copy bits unchanged, and a library may store an element twice.
  if (lane.engine == Engine::copy || lane.engine == Engine::library)
    return fmt::format("a lane of engine {} of rank {} writes {}", to_string(lane.engine), rank, name);
  if (write.mode != WriteMode::store) return fmt::format("{} is added to", name);
  if (write.to.rank == rank || buffer.copies > 1 || awaits(plan, task, write.to.rank, posters)) return std::nullopt;
  return fmt::format("rank {} writes {} of rank {} without its ready handshake", rank, name, write.to.rank);
}

}  // namespace

std::optional<std::string> refuses_ll(const Plan& plan) {
  if (!uses_ll(plan)) return std::nullopt;
  const Posters posters = posters_of(plan);
  std::map<Place, std::vector<const Region*>> reads;
  std::map<Place, int64_t> unread;  // elements written minus elements read
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (reads_blindly(plan, lane, task))
        return fmt::format("a {} of lane {} of rank {} reads LL data without polling", to_string(task.kind), lane.name,
                           lane.rank);
      for (const Region& read : task.reads) {
        if (!is_ll(plan, read)) continue;
        reads[place_of(read)].push_back(&read);
        unread[place_of(read)] -= read.rows * read.cols;
      }
      for (const Write& write : task.writes) {
        if (!is_ll(plan, write.to)) continue;
        if (auto reason = refuses_write(plan, lane, task, write, posters)) return reason;
        unread[place_of(write.to)] += write.to.rows * write.to.cols;
      }
    }
  }
  for (const auto& [place, elements] : unread) {
    if (elements == 0) continue;
    return fmt::format("{} of rank {}: {} more elements are written than read", plan.buffers[place.second].name,
                       place.first, elements);
  }
  for (auto& [place, some] : reads) {
    if (auto twice = read_twice(plan, std::move(some))) return twice;
  }
  return std::nullopt;
}

}  // namespace tilewire::checking
