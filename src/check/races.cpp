// Races: every two accesses that meet, one of them a write, are ordered. Called by check.cpp.
//
// Cost: finding the pairs takes n log n in the accesses, plus the pairs. Most pairs are ordered by a path of a few
// edges. For the others, reachability is computed for kSources sources at a time.
#include <array>

#include "check/boxes.hpp"
#include "check/proofs.hpp"
#include "core/grouped_tasks.hpp"

namespace tilewire::checking {
namespace {

constexpr int kSourceWords = 8;
constexpr int kSources = 64 * kSourceWords;
constexpr int kStepsBack = 48;  // limit of the search for a short path

enum class Access { read, store, accumulate };

struct Touch {
  int task;
  int buffer;
  Access access;
  Rect rect;
};

/// Two accesses of the same memory of a rank whose order is not known yet; `first` comes earlier in the sequence.
struct Pair {
  Touch first;
  Touch second;
  int owner;  ///< rank
};

class RaceCheck {
 public:
  RaceCheck(const Tasks& tasks, const Order& order, const RankSets& heard, Report& report)
      : tasks_(tasks),
        plan_(tasks.plan),
        order_(order),
        heard_(heard),
        report_(report),
        touches_(plan_.buffers.size() * plan_.team.num_ranks),
        seen_(order.num_nodes(), -1) {}

  void run() {
    for (int t = 0; t < tasks_.size(); ++t) collect(t);
    check_copies();
    for (int rank = 0; rank < plan_.team.num_ranks; ++rank) {
      for (int buffer = 0; buffer < std::ssize(plan_.buffers); ++buffer) check_buffer(rank, buffer);
    }
    std::ranges::sort(pending_, {}, [&](const Pair& pair) { return order_.position[pair.first.task]; });
    for (size_t begin = 0; begin < pending_.size() && !report_.full(Rule::race);) begin = settle(begin);
  }

 private:
  [[nodiscard]] std::string name(const Pair& pair, const Touch& touch) const {
    static constexpr std::array kVerbs{"reads", "stores", "accumulates into"};
    return fmt::format("{} {} {}", tasks_.name(touch.task), kVerbs[static_cast<size_t>(touch.access)],
                       region_name(plan_, region_of(pair.owner, touch.buffer, touch.rect)));
  }

  void add(const Region& region, int task, Access access) {
    const Rect rect = rect_of(region);
    if (rect.empty()) return;
    const Buffer& buffer = plan_.buffers[region.buffer];
    const bool callers = buffer.scope == Scope::input || buffer.scope == Scope::output;
    if (callers || buffer.shared) check_span(region, task, access);
    if (buffer.scope != Scope::input)
      touches_[region.rank * plan_.buffers.size() + region.buffer].push_back({task, region.buffer, access, rect});
  }

  void collect(int t) {
    const Task& task = *tasks_.task[t];
    for (const Region& region : task.reads) add(region, t, Access::read);
    for (const Region& region : extents_read(plan_, task)) add(region, t, Access::read);
    for (const EpilogueStep& step : task.epilogue) {
      if (step.operand) add(*step.operand, t, Access::read);
    }
    for (const Write& write : task.writes)
      add(write.to, t, write.mode == WriteMode::store ? Access::store : Access::accumulate);
  }

  /// Check that a caller's buffer or shared workspace is only accessed while its rank's call runs.
  void check_span(const Region& region, int task, Access access) {
    const bool early = !order_.begun.has(task, region.rank);
    const bool late = !order_.ends.has(task, region.rank);
    if (plan_.buffers[region.buffer].shared) {
      if (early || late)
        report_.add(Rule::race, "{} accesses shared workspace {}, possibly {} rank {}'s call has {}", tasks_.name(task),
                    region_name(plan_, region), early ? "before" : "after", region.rank, early ? "begun" : "ended");
      return;
    }
    const char* verb = access == Access::read ? "reads" : "writes";
    if (early)
      report_.add(Rule::race, "{} {} {}, a caller's buffer, but rank {}'s call may begin after this access",
                  tasks_.name(task), verb, region_name(plan_, region), region.rank);
    if (late)
      report_.add(Rule::race, "{} {} {}, a caller's buffer, but rank {}'s call may end before this access",
                  tasks_.name(task), verb, region_name(plan_, region), region.rank);
  }

  void check_buffer(int rank, int buffer) {
    const auto& touches = touches_[rank * plan_.buffers.size() + buffer];
    std::vector<Rect> written;
    std::vector<int> writers;
    for (int i = 0; i < std::ssize(touches); ++i) {
      if (touches[i].access == Access::read) continue;
      written.push_back(touches[i].rect);
      writers.push_back(i);
    }
    const BoxTree tree(std::move(written));
    for (int i = 0; i < std::ssize(touches) && !report_.full(Rule::race); ++i) {
      tree.for_each_meeting(touches[i].rect, [&](int w) {
        const int other = writers[w];
        // Skip repetitions: the tree returns two overlapping writes twice, and each write for itself.
        const bool again = touches[i].access != Access::read && other >= i;
        if (!again) check_pair({touches[other], touches[i], rank});
      });
    }
    check_reuse(rank, buffer);
  }

  /// Check that a buffer's tasks come after all tasks of the buffer whose memory it has, and before those of the next
  /// call.
  void check_reuse(int rank, int buffer) {
    const int before = plan_.buffers[buffer].reuses;
    if (before < 0) return;
    for (const Touch& first : touches_[rank * plan_.buffers.size() + before]) {
      for (const Touch& second : touches_[rank * plan_.buffers.size() + buffer]) {
        if (report_.full(Rule::race)) return;
        const Pair pair{first, second, rank};
        check_next_call(pair, second, first);
        if (order_.position[first.task] >= order_.position[second.task]) {
          report_.add(Rule::race, "{}; {}, in the same memory: want all of the first buffer's tasks before",
                      name(pair, first), name(pair, second));
        } else if (!short_path(first.task, second.task)) {
          pending_.push_back(pair);
        }
      }
    }
  }

  void check_pair(Pair pair) {
    if (pair.first.access == Access::accumulate && pair.second.access == Access::accumulate) return;
    if (pair.first.task == pair.second.task) {
      report_.add(Rule::race, "{} and also {}", name(pair, pair.second), name(pair, pair.first));
      return;
    }
    if (order_.position[pair.first.task] > order_.position[pair.second.task]) std::swap(pair.first, pair.second);
    // LL data order their own read. The next call's write must wait for it, unless the call uses another copy.
    const Buffer& buffer = plan_.buffers[pair.first.buffer];
    if (buffer.ll && pair.second.access == Access::read)
      return buffer.copies > 1 ? void() : check_next_call(pair, pair.second, pair.first);
    if (buffer.copies == 1 && (buffer.scope == Scope::local || buffer.scope == Scope::symmetric)) {
      check_next_call(pair, pair.first, pair.second);
      check_next_call(pair, pair.second, pair.first);
    }
    if (!short_path(pair.first.task, pair.second.task)) pending_.push_back(pair);
  }

  void check_next_call(const Pair& pair, const Touch& now, const Touch& next) {
    if (order_.before_next_call(now.task, next.task)) return;
    report_.add(Rule::race,
                "across calls: {}; in the next call {}; the two are unordered: no wait of rank {} proves that rank {} "
                "has begun that call",
                name(pair, now), name(pair, next), tasks_.rank[next.task], tasks_.rank[now.task]);
  }

  /// Check that no rank stores double-buffered LL data while a peer still polls that copy, two calls earlier: after
  /// each call a rank has heard from all ranks.
  void check_copies() {
    const auto doubled = std::ranges::find_if(plan_.buffers, [](const Buffer& each) { return each.copies > 1; });
    if (doubled == plan_.buffers.end()) return;
    for (int rank = 0; rank < plan_.team.num_ranks; ++rank) {
      for (int peer = 0; peer < plan_.team.num_ranks; ++peer) {
        if (heard_.has(rank, peer)) continue;
        report_.add(Rule::race,
                    "{} is double-buffered, and rank {}'s call may end before rank {} has begun it: a later call could "
                    "store into a copy that rank {} still polls",
                    doubled->name, rank, peer, peer);
      }
    }
  }

  /// Whether a search of a few steps back from `second` finds `first`.
  [[nodiscard]] bool short_path(int first, int second) {
    if (tasks_.in_series(first, second)) return true;
    ++search_;
    stack_.assign(1, second);
    for (int steps = 0; !stack_.empty() && steps < kStepsBack; ++steps) {
      const int node = stack_.back();
      stack_.pop_back();
      const auto preds = order_.preds_of(node);
      if (std::ranges::binary_search(preds, first)) return true;
      if (std::ssize(preds) > kStepsBack) continue;
      for (const int pred : preds) {
        if (order_.position[pred] < order_.position[first] || seen_[pred] == search_) continue;
        seen_[pred] = search_;
        stack_.push_back(pred);
      }
    }
    return false;
  }

  /// Decide the pending pairs from `begin` on, for up to kSources different sources. Returns the end of these pairs.
  size_t settle(size_t begin) {
    std::vector<int> sources;
    size_t end = begin;
    int last = 0;
    for (; end < pending_.size(); ++end) {
      const int source = pending_[end].first.task;
      if (sources.empty() || sources.back() != source) {
        if (std::ssize(sources) == kSources) break;
        sources.push_back(source);
      }
      last = std::max(last, order_.position[pending_[end].second.task]);
    }
    spread(sources, last);
    int bit = 0;
    for (size_t i = begin; i < end; ++i) {
      if (sources[bit] != pending_[i].first.task) ++bit;
      const Pair& pair = pending_[i];
      if ((reached_[pair.second.task][bit / 64] >> (bit % 64) & 1) != 0) continue;
      report_.add(Rule::race, "{}; {}; the two are unordered", name(pair, pair.first), name(pair, pair.second));
    }
    return end;
  }

  /// Set bit i of reached_[node] if source i is the node or comes before it, up to position `last`.
  void spread(const std::vector<int>& sources, int last) {
    reached_.assign(order_.num_nodes(), {});
    for (int bit = 0; bit < std::ssize(sources); ++bit) reached_[sources[bit]][bit / 64] |= uint64_t{1} << (bit % 64);
    for (int place = order_.position[sources[0]]; place <= last; ++place) {
      const int node = order_.sequence[place];
      for (const int pred : order_.preds_of(node)) {
        for (int word = 0; word < kSourceWords; ++word) reached_[node][word] |= reached_[pred][word];
      }
    }
  }

  const Tasks& tasks_;
  const Plan& plan_;
  const Order& order_;
  const RankSets& heard_;
  Report& report_;
  std::vector<std::vector<Touch>> touches_;  ///< [rank * buffers + buffer]
  std::vector<Pair> pending_;
  std::vector<int> seen_;  ///< by node: number of the last search that visited it
  std::vector<int> stack_;
  int search_ = 0;
  std::vector<std::array<uint64_t, kSourceWords>> reached_;
};

}  // namespace

void check_races(const Tasks& tasks, const Order& order, const RankSets& heard, Report& report) {
  RaceCheck(tasks, order, heard, report).run();
}

}  // namespace tilewire::checking
