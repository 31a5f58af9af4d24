// Numbers the tasks and signals of a plan.
// Called by check.cpp and the simulator.
#include "check/tasks.hpp"

#include <algorithm>
#include <unordered_map>

namespace tilewire::checking {

Tasks::Tasks(const Plan& whole, StepsOf of) : plan(whole), steps_of(of) {
  std::unordered_map<uint64_t, int> ids;
  const auto id_of = [&](Signal signal) {
    const uint64_t key = static_cast<uint64_t>(signal.rank) << 32 | static_cast<uint32_t>(signal.index);
    const auto [found, inserted] = ids.try_emplace(key, static_cast<int>(signals.size()));
    if (inserted) signals.push_back(signal);
    return found->second;
  };
  for (int l = 0; l < std::ssize(plan.lanes); ++l) {
    lane_begin.push_back(size());
    for (const Task& one : plan.lanes[l].tasks) {
      wait_begin.push_back(static_cast<int>(waits.size()));
      post_begin.push_back(static_cast<int>(posts.size()));
      for (const Wait& wait : one.waits) waits.push_back({size(), id_of(wait.signal), wait.at_least});
      for (const Post& post : one.posts) {
        const int signal = id_of(post.signal);
        const auto first = posts.begin() + post_begin.back();
        const auto same = std::find_if(first, posts.end(), [&](const Use& use) { return use.signal == signal; });
        if (same == posts.end()) {
          posts.push_back({size(), signal, post.add});
        } else {
          same->amount += post.add;
        }
      }
      task.push_back(&one);
      lane.push_back(l);
      rank.push_back(plan.lanes[l].rank);
    }
  }
  lane_begin.push_back(size());
  wait_begin.push_back(static_cast<int>(waits.size()));
  post_begin.push_back(static_cast<int>(posts.size()));
  totals.resize(signals.size());
  for (const Use& post : posts) totals[post.signal] += post.amount;
  number_meetings();
}

void Tasks::number_meetings() {
  meeting.assign(task.size(), -1);
  std::vector<size_t> num_calls(plan.team.num_ranks, 0);
  for (int t = 0; t < size(); ++t) {
    if (task[t]->kind != TaskKind::collective_call) continue;
    const size_t call = num_calls[rank[t]]++;
    if (call == meetings.size()) meetings.emplace_back();
    meetings[call].push_back(t);
    meeting[t] = static_cast<int>(call);
  }
  for (auto& calls : meetings) std::ranges::sort(calls, {}, [&](int t) { return rank[t]; });
}

}  // namespace tilewire::checking
