// Finds the posts that each wait cannot do without, and builds the order graph from them.
// Called by check.cpp after check_progress.
#include "check/order.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace tilewire::checking {
namespace {

constexpr int kMostRounds = 64;
constexpr int kNone = -1;

/// A task that posts to a signal. Without its post, the signal also lacks the posts that follow in its serial lane.
struct Poster {
  int task;
  int64_t lacking;
};

/// A wait. Within one call it cannot do without the first `prefix` posters of its signal.
struct Waiter {
  int task;
  int prefix;
};

struct SignalUse {
  std::vector<Poster> posters;  ///< sorted by `lacking`, largest first
  std::vector<Waiter> waiters;  ///< sorted by `prefix`, smallest first
};

/// Posters that the rule of the next call treats alike.
struct PosterClass {
  int rank;
  RankSets::Set begun;
  RankSets::Set ends;
};

/// A sequence of growing sets of posters of one signal, and the graph node of the current set.
struct Chain {
  std::vector<char> allowed{};  ///< by class of posters; empty = all classes
  int taken = 0;                ///< posters visited
  int64_t size = 0;             ///< posters in the set
  int node = kNone;             ///< comes after all posters of the set
};

struct Join {
  int before;  ///< position in the simulated sequence of the first waiter on this join
  int prior;   ///< the join that this one extends
};

struct Edge {
  int from;
  int to;
};

std::vector<SignalUse> uses_of(const Tasks& tasks) {
  std::vector<SignalUse> uses(tasks.signals.size());
  for (const Use& post : tasks.posts) uses[post.signal].posters.push_back({post.task, post.amount});
  for (SignalUse& use : uses) {
    for (int64_t i = std::ssize(use.posters) - 2; i >= 0; --i) {
      if (tasks.in_series(use.posters[i].task, use.posters[i + 1].task))
        use.posters[i].lacking += use.posters[i + 1].lacking;
    }
    std::ranges::stable_sort(use.posters, std::greater{}, &Poster::lacking);
  }
  for (const Use& wait : tasks.waits) {
    auto& [posters, waiters] = uses[wait.signal];
    const int64_t spare = tasks.totals[wait.signal] - wait.amount;
    const auto end = std::ranges::partition_point(posters, [&](const Poster& p) { return p.lacking > spare; });
    waiters.push_back({wait.task, static_cast<int>(end - posters.begin())});
  }
  for (SignalUse& use : uses) std::ranges::stable_sort(use.waiters, {}, &Waiter::prefix);
  return uses;
}

/// One round: the edges that the last round's sets of ranks justify.
class Round {
 public:
  Round(const Tasks& tasks, const std::vector<int>& sim_position, const Order& known)
      : tasks_(tasks), sim_position_(sim_position), known_(known) {
    // A meeting comes directly after the last of its calls in the simulated sequence.
    for (const auto& calls : tasks.meetings) {
      int last = 0;
      for (const int call : calls) last = std::max(last, sim_position[call]);
      joins.push_back({last + 1, kNone});
    }
  }

  void add(const SignalUse& use) {
    if (use.waiters.empty() || use.posters.empty()) return;
    classify(use);
    chains_.assign(1, {});
    group_of_.clear();
    for (const Waiter& waiter : use.waiters) {
      Chain& chain = chains_[group_of(waiter.task)];
      extend(chain, use, waiter);
      num_proven += chain.size;
      if (chain.node == kNone) continue;
      edges.push_back({chain.node, waiter.task});
      if (chain.node >= tasks_.size()) {
        Join& join = joins[chain.node - tasks_.size()];
        join.before = std::min(join.before, sim_position_[waiter.task]);
      }
    }
  }

  int64_t num_proven = 0;  ///< number of pairs of a wait and a post that it cannot do without
  std::vector<Edge> edges{};
  std::vector<Join> joins{};

 private:
  void classify(const SignalUse& use) {
    classes_.clear();
    class_of_.clear();
    for (const Poster& poster : use.posters) {
      const int t = poster.task;
      const PosterClass mine{tasks_.rank[t], known_.begun[t], known_.ends[t]};
      const auto found = std::ranges::find_if(classes_, [&](const PosterClass& other) {
        return other.rank == mine.rank && std::ranges::equal(other.begun, mine.begun) &&
               std::ranges::equal(other.ends, mine.ends);
      });
      class_of_.push_back(static_cast<int>(found - classes_.begin()));
      if (found == classes_.end()) classes_.push_back(mine);
    }
  }

  /// Index in chains_ of a waiter's group. The group allows the posters whose absence no post of a later call can fill.
  int group_of(int waiter) {
    const RankSets::Set ends = known_.ends[waiter];
    for (const auto& [ranks, group] : group_of_) {
      if (std::ranges::equal(ranks, ends)) return group;
    }
    Chain chain;
    for (const PosterClass& absent : classes_) {
      const bool safe = std::ranges::all_of(classes_, [&](const PosterClass& early) {
        return early.rank == absent.rank || meet(ends, early.begun) || meet(absent.ends, early.begun);
      });
      chain.allowed.push_back(safe);
    }
    const bool all = std::ranges::find(chain.allowed, 0) == chain.allowed.end();
    group_of_.emplace_back(ends, all ? 0 : static_cast<int>(chains_.size()));
    if (!all) chains_.push_back(std::move(chain));
    return group_of_.back().second;
  }

  void extend(Chain& chain, const SignalUse& use, const Waiter& waiter) {
    std::vector<int> fresh;
    int prior = chain.node;
    for (; chain.taken < waiter.prefix; ++chain.taken) {
      if (!chain.allowed.empty() && !chain.allowed[class_of_[chain.taken]]) continue;
      const int poster = use.posters[chain.taken].task;
      if (fresh.empty() && prior != kNone && prior < tasks_.size() && tasks_.in_series(prior, poster)) prior = kNone;
      if (!fresh.empty() && tasks_.in_series(fresh.back(), poster)) fresh.pop_back();
      fresh.push_back(poster);
      ++chain.size;
    }
    if (fresh.empty()) return;
    if (fresh.size() == 1 && prior == kNone) {
      chain.node = fresh[0];
      return;
    }
    chain.node = tasks_.size() + static_cast<int>(joins.size());
    joins.push_back({sim_position_[waiter.task], prior >= tasks_.size() ? prior - tasks_.size() : kNone});
    if (prior != kNone) edges.push_back({prior, chain.node});
    for (const int poster : fresh) edges.push_back({poster, chain.node});
  }

  const Tasks& tasks_;
  const std::vector<int>& sim_position_;
  const Order& known_;
  std::vector<PosterClass> classes_;
  std::vector<int> class_of_;
  std::vector<Chain> chains_;
  std::vector<std::pair<RankSets::Set, int>> group_of_;
};

/// Tasks before one rank's part of a collective come before tasks after another rank's part.
void add_meetings(const Tasks& tasks, std::vector<Edge>& edges) {
  const auto meeting_of = [&](int node) {
    const bool meets = node < tasks.size() && tasks.meeting[node] >= 0;
    return meets ? tasks.size() + tasks.meeting[node] : kNone;
  };
  if (tasks.meetings.empty()) return;
  for (size_t i = 0, end = edges.size(); i < end; ++i) {
    if (const int meeting = meeting_of(edges[i].to); meeting != kNone) edges.push_back({edges[i].from, meeting});
  }
  for (size_t i = 0, end = edges.size(); i < end; ++i) {
    if (const int meeting = meeting_of(edges[i].from); meeting != kNone) edges.push_back({meeting, edges[i].to});
  }
}

void set_preds(Order& order, int num_nodes, const std::vector<Edge>& edges) {
  order.pred_begin.assign(num_nodes + 1, 0);
  for (const Edge& edge : edges) ++order.pred_begin[edge.to + 1];
  for (int node = 0; node < num_nodes; ++node) order.pred_begin[node + 1] += order.pred_begin[node];
  order.preds.resize(edges.size());
  std::vector<int> end(order.pred_begin.begin(), order.pred_begin.end() - 1);
  for (const Edge& edge : edges) order.preds[end[edge.to]++] = edge.from;
  for (int node = 0; node < num_nodes; ++node)
    std::sort(order.preds.begin() + order.pred_begin[node], order.preds.begin() + order.pred_begin[node + 1]);
}

/// Put each join directly before the first task that needs it; all of its posters come earlier.
void set_sequence(Order& order, const std::vector<int>& simulated, std::vector<Join> joins) {
  for (int64_t j = std::ssize(joins) - 1; j >= 0; --j) {
    if (joins[j].prior != kNone) joins[joins[j].prior].before = std::min(joins[joins[j].prior].before, joins[j].before);
  }
  std::vector<int> by_place(joins.size());
  for (size_t j = 0; j < joins.size(); ++j) by_place[j] = static_cast<int>(j);
  std::ranges::stable_sort(by_place, {}, [&](int j) { return joins[j].before; });
  order.sequence.clear();
  auto next = by_place.begin();
  for (int place = 0; place < std::ssize(simulated); ++place) {
    for (; next != by_place.end() && joins[*next].before == place; ++next)
      order.sequence.push_back(order.num_tasks + *next);
    order.sequence.push_back(simulated[place]);
  }
  for (; next != by_place.end(); ++next) order.sequence.push_back(order.num_tasks + *next);
  order.position.resize(order.sequence.size());
  for (int place = 0; place < order.num_nodes(); ++place) order.position[order.sequence[place]] = place;
}

void set_ranks(Order& order, const Tasks& tasks) {
  order.begun = RankSets(tasks.plan.team.num_ranks, order.num_nodes());
  for (int t = 0; t < tasks.size(); ++t) order.begun.add(t, tasks.rank[t]);
  for (int meeting = 0; meeting < std::ssize(tasks.meetings); ++meeting) order.begun.fill(tasks.size() + meeting);
  order.ends = order.begun;
  for (const int node : order.sequence) {
    for (const int pred : order.preds_of(node)) {
      ensure(order.position[pred] < order.position[node], "the order graph has a cycle at {}", node);
      order.begun.add(node, order.begun[pred]);
    }
  }
  for (auto node = order.sequence.rbegin(); node != order.sequence.rend(); ++node) {
    for (const int pred : order.preds_of(*node)) order.ends.add(pred, order.ends[*node]);
  }
}

}  // namespace

RankSets heard_by_ranks(const Tasks& with_data, const Order& order, int first, int end) {
  const int num_ranks = with_data.plan.team.num_ranks;
  RankSets heard(num_ranks, num_ranks);
  const auto hears = [&](int task, RankSets::Set begun) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      if (order.ends.has(task, rank)) heard.add(rank, begun);
    }
  };
  RankSets begun_before(num_ranks, std::ssize(with_data.signals));  // all posts to a signal
  for (const Use& post : with_data.posts) begun_before.add(post.signal, order.begun[post.task]);
  for (int task = 0; task < with_data.size(); ++task) hears(task, order.begun[task]);
  for (const Use& wait : with_data.waits) {
    // A poll ends when all who write its data have written. (Of other signals `order` knows more.)
    const int index = with_data.signals[wait.signal].index;
    if (index >= first && index < end) hears(wait.task, begun_before[wait.signal]);
  }
  return heard;
}

Order prove_order(const Tasks& tasks, const std::vector<int>& simulated, Report& report) {
  const std::vector<SignalUse> uses = uses_of(tasks);
  std::vector<int> sim_position(tasks.size());
  for (int place = 0; place < std::ssize(simulated); ++place) sim_position[simulated[place]] = place;
  std::vector<Edge> in_series;
  for (int t = 1; t < tasks.size(); ++t) {
    if (tasks.in_series(t - 1, t)) in_series.push_back({t - 1, t});
  }
  Order order;
  order.num_tasks = tasks.size();
  order.begun = RankSets(tasks.plan.team.num_ranks, tasks.size(), true);
  order.ends = order.begun;
  // Start with every edge that one call alone justifies, and drop the edges that the next call breaks.
  int64_t num_proven = kNone;
  for (int count = 0; count < kMostRounds; ++count) {
    Round round(tasks, sim_position, order);
    for (const SignalUse& use : uses) round.add(use);
    if (round.num_proven == num_proven) return order;
    num_proven = round.num_proven;
    round.edges.insert(round.edges.end(), in_series.begin(), in_series.end());
    add_meetings(tasks, round.edges);
    set_preds(order, tasks.size() + static_cast<int>(round.joins.size()), round.edges);
    set_sequence(order, simulated, std::move(round.joins));
    set_ranks(order, tasks);
  }
  report.add(Rule::unsupported,
             "the order of the tasks is not settled after {} rounds: their waits justify each other "
             "in too long a chain",
             kMostRounds);
  return order;
}

}  // namespace tilewire::checking
