// Traffic: counts the bytes of each link in one call from the regions of tasks.
// Called by check.cpp, `tilewire plan` and the tests.
#include <map>

#include "tilewire/check.hpp"

namespace tilewire {
namespace {

class Traffic {
 public:
  explicit Traffic(const Plan& plan) : plan_(plan) {}

  void add(int rank, const Task& task) {
    if (task.kind == TaskKind::copy) {
      // Count a copy from source to destination, whichever rank issues it.
      for (const Write& write : task.writes) move(task.reads[0].rank, write.to.rank, write.to);
      return;
    }
    if (task.kind == TaskKind::collective_call) return add_collective(rank, task);
    for (const Region& region : task.reads) move(region.rank, rank, region);
    for (const Region& region : task.addends) move(region.rank, rank, region);
    for (const EpilogueStep& step : task.epilogue) {
      if (step.operand) move(step.operand->rank, rank, *step.operand);
    }
    for (const Write& write : task.writes) move(rank, write.to.rank, write.to);
  }

  [[nodiscard]] std::vector<LinkTraffic> take() const {
    std::vector<LinkTraffic> all;
    for (const auto& [pair, bytes] : bytes_) all.push_back({pair.first, pair.second, bytes});
    return all;
  }

 private:
  /// Count the least bytes that each pair must exchange: the library's algorithm is unknown.
  void add_collective(int rank, const Task& task) {
    const bool gathers = task.collective == Collective::all_gather;
    Region part = gathers ? task.reads[0] : task.writes[0].to;
    const int n = plan_.team.num_ranks;
    if (task.collective == Collective::all_to_all) part.rows /= n;
    for (int peer = 0; peer < n; ++peer) {
      if (task.collective != Collective::all_reduce) {
        move(peer, rank, part);
        continue;
      }
      // The owner of a part receives the other ranks' partials of it and sends the sum to all ranks.
      const Range rows = shard_of(task.reads[0].rows * task.reads[0].cols, n, peer);
      part = {.buffer = part.buffer, .rows = 1, .cols = rows.size()};
      move(rank, peer, part);
      move(peer, rank, part);
    }
  }

  void move(int from, int to, const Region& region) {
    const int64_t bytes = region.rows * region.cols * bytes_of(plan_.buffers[region.buffer].dtype);
    if (from != to && bytes > 0) bytes_[{from, to}] += bytes;
  }

  const Plan& plan_;
  std::map<std::pair<int, int>, int64_t> bytes_;
};

}  // namespace

std::vector<LinkTraffic> traffic_of(const Plan& plan) {
  Traffic traffic(plan);
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) traffic.add(lane.rank, task);
  }
  return traffic.take();
}

}  // namespace tilewire
