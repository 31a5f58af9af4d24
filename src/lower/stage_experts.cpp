// Makes grouped GEMMs stream-ordered: routing and groups in a kernel, the products one kernel after another, and the
// sums of experts in a kernel. Listed in lower.cpp.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"
#include "lower/kernel_limits.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"
#include "lower/stages.hpp"

namespace tilewire::lowering {
namespace {

/// CTAs of a rank that copy tokens to the peers; they, those that route, and a CTA of handshakes.
constexpr int kExchangeCtas = 16;
constexpr int kBesideGroups = kExchangeCtas + kMostRouteCtas + 3;

/// Whether a task takes what a grouped GEMM has made.
bool follows_products(const Plan& plan, const Task& task) {
  return std::ranges::any_of(task.reads, [&](const Region& read) {
    return std::ranges::any_of(plan.lanes, [&](const Lane& lane) {
      // NOTE: of any rank, as a rank without experts makes none.
      return std::ranges::any_of(lane.tasks, [&](const Task& other) {
        return is_grouped_gemm(other) && other.writes[0].to.buffer == read.buffer;
      });
    });
  });
}

/// What a task does, without its places, waits and posts.
Task without_places(Task task) {
  task.reads.clear();
  for (Write& write : task.writes) write.to = {};
  task.waits.clear();
  task.posts.clear();
  return task;
}

/// Whether `next` does for the following groups, or rows, what `task` does.
bool continues(const Task& task, const Task& next) {
  const auto follows = [](const Region& x, const Region& y, int64_t rows) {
    Region expected = x;
    expected.row += x.rows;
    expected.rows = rows;
    return expected == y;
  };
  const bool pools = computes_with(task, Body::pool);  // from one table
  if (task.kind == TaskKind::sync || task.reads.size() != next.reads.size() || task.writes.size() != 1 ||
      without_places(task) != without_places(next))
    return false;
  for (size_t i = 0; i < task.reads.size(); ++i) {
    const bool moves = !pools || i > 0;
    if (!(moves ? follows(task.reads[i], next.reads[i], next.reads[i].rows) : task.reads[i] == next.reads[i]))
      return false;
  }
  return follows(task.writes[0].to, next.writes[0].to, next.writes[0].to.rows);
}

/// Add to the posts of a task.
void add_post(Task& task, const Post& post) {
  const auto same = std::ranges::find(task.posts, post.signal, &Post::signal);
  same == task.posts.end() ? task.posts.push_back(post) : static_cast<void>(same->add += post.add);
}

/// Let one task do what several tasks of neighbouring groups, or rows, do. Its waits and posts are those of all.
void join_tasks(std::vector<Task>& tasks) {
  std::vector<Task> joined;
  for (Task& task : tasks) {
    if (joined.empty() || !continues(joined.back(), task)) {
      joined.push_back(std::move(task));
      continue;
    }
    Task& all = joined.back();
    for (size_t i = 0; i < task.reads.size(); ++i) {
      if (all.reads[i] != task.reads[i]) all.reads[i].rows += task.reads[i].rows;
    }
    all.writes[0].to.rows += task.writes[0].to.rows;
    for (const Wait& wait : task.waits) {
      if (std::ranges::find(all.waits, wait) == all.waits.end()) all.waits.push_back(wait);
    }
    for (const Post& post : task.posts) add_post(all, post);
  }
  tasks = std::move(joined);
}

/// Of signals that the same tasks post to and wait for, keep one. Returns the number of the others.
size_t merge_signals(Plan& plan) {
  struct Use {
    int rank;
    std::vector<std::array<int64_t, 3>> posts;  ///< lane, task, addition
    std::vector<std::array<int64_t, 5>> waits;  ///< lane, task, value, purpose, column

    auto operator<=>(const Use&) const = default;
  };
  std::map<std::pair<int, int>, Use> uses;
  const auto use_of = [&](const Signal& signal) -> Use& {
    Use& use = uses[{signal.rank, signal.index}];
    use.rank = signal.rank;
    return use;
  };
  for (int64_t lane = 0; lane < std::ssize(plan.lanes); ++lane) {
    for (int64_t index = 0; index < std::ssize(plan.lanes[lane].tasks); ++index) {
      const Task& task = plan.lanes[lane].tasks[index];
      for (const Post& post : task.posts) use_of(post.signal).posts.push_back({lane, index, post.add});
      for (const Wait& wait : task.waits)
        use_of(wait.signal)
            .waits.push_back({lane, index, wait.at_least, static_cast<int64_t>(wait.purpose), wait.from_col});
    }
  }
  std::set<Use> kept;
  const auto is_double = [&](const Signal& signal) { return !uses.contains({signal.rank, signal.index}); };
  const size_t merged = std::erase_if(uses, [&](const auto& each) { return !kept.insert(each.second).second; });
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      std::erase_if(task.posts, [&](const Post& post) { return is_double(post.signal); });
      std::erase_if(task.waits, [&](const Wait& wait) { return is_double(wait.signal); });
    }
  }
  return merged;
}

/// Whether a task brings rows into groups.
bool groups_rows(const Task& task) { return computes_with(task, Body::pool) && task.reads.size() == 2; }

/// Whether a task brings rows into groups, or to a peer.
bool moves_rows(const Task& task) { return computes_with(task, Body::select) || groups_rows(task); }

/// Whether a task adds the rows of tokens.
bool adds_rows(const Task& task) { return computes_with(task, Body::pool) && task.reads.size() == 3; }

/// The CTAs that group rows wait for the tokens of the peers. Let them copy the rank's own tokens meanwhile.
void move_own_copies(Plan& plan, Lane& groups) {
  std::vector<Task> own;
  for (Lane& lane : plan.lanes) {
    if (lane.rank != groups.rank || &lane == &groups) continue;
    const auto moves = [&](const Task& task) {
      return task.kind == TaskKind::copy && task.waits.empty() && task.writes.size() == 1 &&
             task.writes[0].to.rank == groups.rank && std::ranges::any_of(groups.tasks, [&](const Task& other) {
               return groups_rows(other) && other.reads[0].buffer == task.writes[0].to.buffer;
             });
    };
    std::ranges::copy_if(lane.tasks, std::back_inserter(own), moves);
    std::erase_if(lane.tasks, moves);
  }
  groups.tasks.insert(groups.tasks.begin(), own.begin(), own.end());
}

/// Set stage, engine and workers of a lane of a rank that has groups of rows.
void set_stage(const Plan& plan, Lane& lane, const Target& target) {
  if (has_groups(lane)) {
    lane.stage = kCallStage;
    lane.engine = Engine::serial;
    lane.workers = 0;
    return join_tasks(lane.tasks);
  }
  const auto has = [&](const auto& is) { return std::ranges::any_of(lane.tasks, is); };
  const bool follows = has([&](const Task& task) { return follows_products(plan, task); });
  if (follows) lane.stage = kStageAfterCall;
  if (follows || has(adds_rows) || has(moves_rows)) {
    // All CTAs share the rows of all groups, or of all tokens of a rank.
    lane.engine = Engine::serial;
    if (lane.workers == 0) lane.workers = std::max(1, target.sms - kBesideGroups);
    return join_tasks(lane.tasks);
  }
  if (has([](const Task& task) { return task.route.has_value(); })) {
    if (lane.workers == 0) lane.workers = kMostRouteCtas;
    return;
  }
  if (has([](const Task& task) { return task.kind == TaskKind::copy; })) {
    lane.engine = Engine::serial;
    if (lane.workers == 0) lane.workers = kExchangeCtas;
  }
}

/// Whether a task of another lane posts to a signal.
bool others_post(const Plan& plan, const Lane& lane, const Signal& signal) {
  return std::ranges::any_of(plan.lanes, [&](const Lane& other) {
    return &other != &lane && std::ranges::any_of(other.tasks, [&](const Task& task) {
      return std::ranges::find(task.posts, signal, &Post::signal) != task.posts.end();
    });
  });
}

/// Remove waits for signals to which only earlier tasks of the same serial lane post, and these posts.
size_t drop_waits_in_lane(Plan& plan, Lane& lane) {
  std::vector<Signal> over;
  size_t dropped = 0;
  for (Task& task : lane.tasks) {
    dropped +=
        std::erase_if(task.waits, [&](const Wait& wait) { return std::ranges::find(over, wait.signal) != over.end(); });
    for (const Post& post : task.posts) {
      if (post.signal.rank == lane.rank && !others_post(plan, lane, post.signal)) over.push_back(post.signal);
    }
  }
  for (Task& task : lane.tasks) {
    std::erase_if(task.posts, [&](const Post& post) {
      return post.signal.rank == lane.rank && !others_wait(plan, lane, post.signal);
    });
  }
  return dropped;
}

/// Whether only tasks behind the products post to a signal, on any rank.
bool posted_late(const Plan& plan, const Signal& signal) {
  return std::ranges::none_of(plan.lanes, [&](const Lane& lane) {
    return lane.stage != kStageAfterCall && std::ranges::any_of(lane.tasks, [&](const Task& task) {
             return std::ranges::find(task.posts, signal, &Post::signal) != task.posts.end();
           });
  });
}

/// A lane beside `lane` of a task that only waits and posts, if it does.
void add_handshake(std::vector<Lane>& lanes, const Lane& lane, int stage, Task task) {
  if (task.waits.empty() && task.posts.empty()) return;
  lanes.push_back({.rank = lane.rank,
                   .engine = Engine::serial,
                   .name = lane.name + (stage == 0 ? "_await" : "_made"),
                   .stage = stage,
                   .tasks = {std::move(task)}});
}

/// Products neither wait nor post: a task in the kernel before them awaits the other ranks, and one in the kernel
/// behind them posts. So do the waits at the end of lanes for what is only posted then.
void bring_out_handshakes(Plan& plan) {
  std::vector<Lane> more;
  for (Lane& lane : plan.lanes) {
    Task before;
    Task behind;
    for (Task& task : lane.tasks) {
      if (lane.stage != kCallStage) continue;
      for (const Wait& wait : task.waits) {
        if (std::ranges::find(before.waits, wait) == before.waits.end()) before.waits.push_back(wait);
      }
      behind.posts.insert(behind.posts.end(), task.posts.begin(), task.posts.end());
      task.waits.clear();
      task.posts.clear();
    }
    const auto is_late = [&](const Wait& wait) { return posted_late(plan, wait.signal); };
    while (lane.stage == 0 && !lane.tasks.empty() && lane.tasks.back().kind == TaskKind::sync &&
           std::ranges::any_of(lane.tasks.back().waits, is_late)) {
      behind.waits.insert(behind.waits.end(), lane.tasks.back().waits.begin(), lane.tasks.back().waits.end());
      lane.tasks.pop_back();
    }
    add_handshake(more, lane, 0, std::move(before));
    add_handshake(more, lane, kStageAfterCall, std::move(behind));
  }
  plan.lanes.insert(plan.lanes.end(), more.begin(), more.end());
}

}  // namespace

std::string stage_experts(Plan& plan, const Target& target) {
  const auto has_rows = [](const Lane& lane) {
    return std::ranges::any_of(
        lane.tasks, [](const Task& task) { return moves_rows(task) || adds_rows(task) || is_grouped_gemm(task); });
  };
  if (std::ranges::none_of(plan.lanes, has_rows)) return "no groups of rows";
  const Plan before = plan;
  for (Lane& lane : plan.lanes) set_stage(before, lane, target);
  const size_t merged = merge_signals(plan);
  for (Lane& lane : plan.lanes) {
    if (lane.stage == 0) move_own_copies(plan, lane);
  }
  size_t dropped = drop_waits_between_stages(plan);
  for (Lane& lane : plan.lanes) {
    if (lane.stage == kCallStage) dropped += drop_waits_in_lane(plan, lane);
  }
  bring_out_handshakes(plan);
  int64_t products = 0;
  for (const Lane& lane : plan.lanes) products += lane.rank == 0 && has_groups(lane) ? std::ssize(lane.tasks) : 0;
  return fmt::format(
      "rank 0: {} grouped GEMMs, one after another, between two kernels; their order replaces {} waits; {} signals "
      "merged",
      products, dropped, merged);
}

}  // namespace tilewire::lowering
