// Makes grouped GEMMs stream-ordered: routing and groups in a kernel, the products one kernel after another, and the
// sums of experts in a kernel. Listed in lower.cpp.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"
#include "lower/stages.hpp"

namespace tilewire::lowering {
namespace {

/// CTAs of a rank that copy tokens to the peers and route, and a CTA of handshakes.
constexpr int kExchangeCtas = 16;
constexpr int kBesideGroups = kExchangeCtas + 4;

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

/// Whether `next` does for the following groups what `task` does.
bool continues(const Task& task, const Task& next) {
  const auto follows = [](const Region& x, const Region& y, int64_t rows) {
    Region expected = x;
    expected.row += x.rows;
    expected.rows = rows;
    return expected == y;
  };
  const size_t grouped = computes_with(task, Body::pool) ? 1 : 0;  // the operand in groups
  if (task.body != next.body || task.activation != next.activation || task.gemm != next.gemm) return false;
  if (task.reads.size() != next.reads.size() || task.writes.size() != 1 || next.writes.size() != 1) return false;
  for (size_t i = 0; i < task.reads.size(); ++i) {
    const bool moves = i == grouped || is_grouped_gemm(task);
    if (!(moves ? follows(task.reads[i], next.reads[i], next.reads[i].rows) : task.reads[i] == next.reads[i]))
      return false;
  }
  return task.writes[0].first_col == next.writes[0].first_col &&
         follows(task.writes[0].to, next.writes[0].to, next.writes[0].to.rows);
}

/// Let one task do what several tasks of neighbouring groups do. Its waits and posts are those of all.
void join_groups(std::vector<Task>& tasks) {
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
    all.posts.insert(all.posts.end(), task.posts.begin(), task.posts.end());
  }
  tasks = std::move(joined);
}

/// Set stage, engine and workers of a lane of a rank that routes.
void set_stage(const Plan& plan, Lane& lane, const Target& target) {
  if (has_groups(lane)) {
    lane.stage = kCallStage;
    lane.engine = Engine::serial;
    lane.workers = 0;
    return join_groups(lane.tasks);
  }
  const auto follows = [&](const Task& task) { return follows_products(plan, task); };
  if (std::ranges::any_of(lane.tasks, follows)) {
    lane.stage = kStageAfterCall;
    if (lane.workers == 0) lane.workers = std::max(1, target.sms - kBesideGroups);
    return;
  }
  const bool pools = std::ranges::any_of(lane.tasks, [](const Task& task) { return computes_with(task, Body::pool); });
  if (pools) {
    // All CTAs share the rows of all groups.
    lane.engine = Engine::serial;
    if (lane.workers == 0) lane.workers = std::max(1, target.sms - kBesideGroups);
    return join_groups(lane.tasks);
  }
  const bool copies = std::ranges::any_of(lane.tasks, [](const Task& task) { return task.kind == TaskKind::copy; });
  if (copies) {
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

}  // namespace

std::string stage_experts(Plan& plan, const Target& target) {
  if (std::ranges::none_of(plan.lanes, has_groups)) return "no grouped GEMMs";
  if (!target.streams) return "ranks share a GPU, where a call is one kernel";
  const Plan before = plan;
  for (Lane& lane : plan.lanes) set_stage(before, lane, target);
  size_t dropped = drop_waits_between_stages(plan);
  for (Lane& lane : plan.lanes) {
    if (lane.stage == kCallStage) dropped += drop_waits_in_lane(plan, lane);
  }
  int64_t products = 0;
  for (const Lane& lane : plan.lanes) products += lane.rank == 0 && has_groups(lane) ? std::ssize(lane.tasks) : 0;
  return fmt::format("rank 0: {} grouped GEMMs, one after another, between two kernels; their order replaces {} waits",
                     products, dropped);
}

}  // namespace tilewire::lowering
