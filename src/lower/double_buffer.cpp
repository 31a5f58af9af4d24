// Gives LL data two copies, which calls use in turn, so that senders need no ready handshake.
// Listed in lower.cpp.
#include <algorithm>
#include <vector>

#include "check/first_race.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"
#include "lower/kernel_limits.hpp"
#include "lower/ll_alone.hpp"
#include "lower/passes.hpp"

namespace tilewire::lowering {
namespace {

/// [a][b]: whether rank a stores LL data on rank b, which b polls before its call ends.
std::vector<std::vector<bool>> ll_traffic(const Plan& plan) {
  const int ranks = plan.team.num_ranks;
  std::vector<std::vector<bool>> sends(ranks, std::vector<bool>(ranks, false));
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      for (const Write& write : task.writes) {
        if (is_ll(plan, write.to) && write.to.rows > 0 && write.to.cols > 0) sends[lane.rank][write.to.rank] = true;
      }
    }
  }
  return sends;
}

/// Whether an op has room for the addresses of each task's LL data.
bool has_room(const Plan& plan) {
  return std::ranges::all_of(plan.lanes, [&](const Lane& lane) {
    return std::ranges::all_of(lane.tasks, [](const Task& task) {
      return std::ssize(task.reads) <= kMostDoubleBuffered && std::ssize(task.writes) <= kMostDoubleBuffered;
    });
  });
}

/// Whether a task stores LL data on peers, and nothing else there.
bool sends_ll_alone(const Plan& plan, int rank, const Task& task) {
  const auto is_far = [&](const Write& write) { return write.to.rank != rank; };
  return std::ranges::any_of(task.writes, is_far) &&
         std::ranges::all_of(task.writes, [&](const Write& write) { return !is_far(write) || is_ll(plan, write.to); });
}

/// Remove the waits for readiness of tasks that send peers LL data alone, then posts that no task waits for, then tasks
/// without an effect. Returns the number of removed waits.
size_t drop_handshakes(Plan& plan) {
  size_t dropped = 0;
  std::vector<bool> awaited(static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks, false);
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      const bool alone = sends_ll_alone(plan, lane.rank, task);
      dropped += std::erase_if(task.waits, [&](const Wait& wait) { return alone && wait.purpose == Purpose::ready; });
      for (const Wait& wait : task.waits) awaited[signal_id(plan, wait.signal)] = true;
    }
  }
  for (Lane& lane : plan.lanes) {
    std::erase_if(lane.tasks, [&](Task& task) {
      const size_t idle =
          std::erase_if(task.posts, [&](const Post& post) { return !awaited[signal_id(plan, post.signal)]; });
      return idle > 0 && task.kind == TaskKind::sync && task.posts.empty() && task.waits.empty();
    });
  }
  return dropped;
}

}  // namespace

std::string double_buffer(Plan& plan, const Target&) {
  if (!uses_ll(plan)) return "no LL data";
  const int ranks = plan.team.num_ranks;
  if (!has_room(plan)) return fmt::format("tasks with more than {} reads or writes", kMostDoubleBuffered);
  const auto sends = ll_traffic(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != rank && !sends[peer][rank])
        return fmt::format("rank {} gets no LL data from rank {}, so its call may end before that of rank {} begins",
                           rank, peer, peer);
    }
  }
  Plan doubled = plan;
  for (Buffer& buffer : doubled.buffers) {
    if (buffer.ll) buffer.copies = 2;
  }
  const size_t dropped = drop_handshakes(doubled);
  if (dropped == 0) return "no ready handshakes before LL data";
  // Prove the plan without the handshakes: they may also order other memory, about which LL data reveal nothing.
  if (!shares_ll_data_alone(plan)) {
    if (const auto race = checking::first_race(doubled)) return "ready handshakes also order other data: " + *race;
  }
  plan = std::move(doubled);
  return fmt::format("LL data have two copies; {} waits for ready handshakes go", dropped);
}

}  // namespace tilewire::lowering
