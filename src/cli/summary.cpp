// Summaries and listings of plans.
// Called by plan.
#include "cli/summary.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "cli/counted.hpp"
#include "core/bodies.hpp"
#include "core/implied_order.hpp"
#include "core/text.hpp"
#include "tilewire/check.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::cli {
namespace {

// Executes a plan on a virtual clock: a task takes its cost, and a pool has a worker for every task.
class Clock {
 public:
  Clock(const Plan& plan, const std::function<double(const Task&)>& cost) : plan_(plan), cost_(cost) {
    counts_.resize(static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks);
    waiters_.resize(counts_.size());
  }

  double run() {
    for (int lane = 0; lane < std::ssize(plan_.lanes); ++lane) {
      const int64_t count = std::ssize(plan_.lanes[lane].tasks);
      const int64_t at_once = is_serial(plan_.lanes[lane].engine) ? std::min<int64_t>(1, count) : count;
      for (int64_t task = 0; task < at_once; ++task) start({0, lane, task});
    }
    int64_t finished = 0;
    while (!running_.empty()) {
      const Run run = running_.top();
      running_.pop();
      now_ = run.end;
      ++finished;
      const Lane& lane = plan_.lanes[run.lane];
      for (const Post& post : lane.tasks[run.task].posts) add(post);
      if (is_serial(lane.engine) && run.task + 1 < std::ssize(lane.tasks)) start({0, run.lane, run.task + 1});
    }
    if (finished != num_tasks(plan_)) {
      fail(ErrorKind::refused_plan, "the plan cannot end: {} of {} tasks can start", finished, num_tasks(plan_));
    }
    return now_;
  }

 private:
  struct Run {
    double end = 0;
    int lane = 0;
    int64_t task = 0;
    bool operator<(const Run& other) const { return end > other.end; }  // the earliest is on top
  };

  // Start the task, or let it wait for the first signal that is below its threshold.
  void start(Run run) {
    const Task& task = plan_.lanes[run.lane].tasks[run.task];
    for (const Wait& wait : task.waits) {
      if (counts_[signal_id(plan_, wait.signal)] >= wait.at_least) continue;
      waiters_[signal_id(plan_, wait.signal)].push_back(run);
      return;
    }
    run.end = now_ + cost_(task);
    running_.push(run);
  }

  void add(const Post& post) {
    counts_[signal_id(plan_, post.signal)] += post.add;
    for (const Run& waiter : std::exchange(waiters_[signal_id(plan_, post.signal)], {})) start(waiter);
  }

  const Plan& plan_;
  const std::function<double(const Task&)>& cost_;
  double now_ = 0;
  std::vector<int64_t> counts_;
  std::vector<std::vector<Run>> waiters_;
  std::priority_queue<Run> running_;
};

std::string mib(double bytes) { return fmt::format("{:.3f} MiB", bytes / (1 << 20)); }

std::string traffic_text(const Plan& plan, const Problem& problem) {
  const std::vector<LinkTraffic> traffic = traffic_of(plan);
  int64_t total = 0;
  std::string lines;
  for (const LinkTraffic& link : traffic) {
    total += link.bytes;
    lines += fmt::format("    rank {} -> rank {}  {}\n", link.from, link.to, mib(static_cast<double>(link.bytes)));
  }
  const int64_t least = find_operator(problem.op).least_bytes(problem, plan.team.num_ranks);
  const std::string ratio =
      least > 0 ? fmt::format(", {:.2f} x the least", static_cast<double>(total) / static_cast<double>(least)) : "";
  return fmt::format("  links       {}{}\n", mib(static_cast<double>(total)), ratio) + lines;
}

std::string regions_text(const Plan& plan, const Task& task) {
  std::string text;
  for (const Region& read : task.reads) text += (text.empty() ? " " : " + ") + region_name(plan, read);
  for (const Region& addend : task.addends) text += " + " + region_name(plan, addend);
  const Shape result = result_shape(task);
  for (const Write& write : task.writes) {
    if (write.to.cols < result.cols)
      text += fmt::format(", its cols {}..{}", write.first_col, write.first_col + write.to.cols);
    text += (write.mode == WriteMode::accumulate ? " +> " : " -> ") + region_name(plan, write.to);
  }
  return text;
}

std::string task_text(const Plan& plan, int64_t index, const Task& task) {
  std::string text = fmt::format("  {:>5} {:<8}{}", index, to_string(task.kind), regions_text(plan, task));
  for (const EpilogueStep& step : task.epilogue) text += ", " + to_string(step.kind);
  for (const Wait& wait : task.waits) {
    text +=
        fmt::format(", waits {} >= {} ({})", signal_name(plan, wait.signal), wait.at_least, to_string(wait.purpose));
  }
  for (const Post& post : task.posts) text += fmt::format(", posts {} + {}", signal_name(plan, post.signal), post.add);
  return text + "\n";
}

}  // namespace

double flops_of(const Task& task) {
  const bool computes = task.kind == TaskKind::gemm_call || task.kind == TaskKind::compute;
  return computes && facts_of(task.body).multiplies ? facts_of(task.body).ops(task) : 0;
}

double moved_bytes_of(const Plan& plan, const Task& task) {
  if (task.kind == TaskKind::compute || task.kind == TaskKind::gemm_call) return 0;
  double bytes = 0;
  for (const Write& write : task.writes) {
    bytes += static_cast<double>(write.to.rows * write.to.cols * bytes_of(plan.buffers[write.to.buffer].dtype));
  }
  return bytes;
}

double critical_path(const Plan& plan, const std::function<double(const Task&)>& cost) {
  return in_full_order(plan, [&](const Plan& ordered) { return Clock(ordered, cost).run(); });
}

std::string summary_of(const Plan& plan) {
  std::map<std::string, int64_t> kinds;
  double flops = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      ++kinds[to_string(task.kind)];
      flops += flops_of(task);
    }
  }
  std::string tasks;
  for (const auto& [kind, count] : kinds) tasks += fmt::format(", {} {}", count, kind);
  const auto [problem, config] = note_of(plan);
  std::string text = fmt::format("{} on {}: {}\n", plan.op, counted(plan.team.num_ranks, "rank"), to_string(problem));
  text += fmt::format("  schedule    {} {}\n", config.schedule, to_string(config));
  text += fmt::format("  tasks       {} in {}{}\n", num_tasks(plan), counted(plan.lanes.size(), "lane"), tasks);
  text += fmt::format("  tiles       {} of GEMM, {:.3f} GFLOP\n", kinds["compute"] + kinds["gemm_call"], flops * 1e-9);
  text += fmt::format("  signals     {} per rank\n", num_signals(plan));
  text += fmt::format("  workspace   {} symmetric, {} local per rank\n",
                      mib(static_cast<double>(symmetric_bytes(plan))), mib(static_cast<double>(local_bytes(plan))));
  int64_t most_of_peers = 0;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank)
    most_of_peers = std::max(most_of_peers, peer_bytes(plan, rank));
  text += fmt::format("  addresses   {} of peers' memory per rank at most\n", mib(static_cast<double>(most_of_peers)));
  text += traffic_text(plan, problem);
  const double count = critical_path(plan, [](const Task&) { return 1.0; });
  const double chain_flops = critical_path(plan, [&](const Task& task) { return flops_of(task); });
  const double chain_bytes = critical_path(plan, [&](const Task& task) { return moved_bytes_of(plan, task); });
  text += fmt::format("  longest chain of tasks: {}, or {:.3f} GFLOP, or {} moved\n",
                      counted(static_cast<int64_t>(count), "task"), chain_flops * 1e-9, mib(chain_bytes));
  return text;
}

std::string listing_of(const Plan& plan, int64_t limit) {
  std::string text;
  for (const Lane& lane : plan.lanes) {
    const int64_t shown = std::min<int64_t>(limit, std::ssize(lane.tasks));
    text += fmt::format("rank {} lane {} ({}): {}\n", lane.rank, lane.name, to_string(lane.engine),
                        counted(lane.tasks.size(), "task"));
    for (int64_t i = 0; i < shown; ++i) text += task_text(plan, i, lane.tasks[i]);
    if (shown < std::ssize(lane.tasks)) text += fmt::format("  ... {} more\n", std::ssize(lane.tasks) - shown);
  }
  return text;
}

}  // namespace tilewire::cli
