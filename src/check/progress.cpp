// Progress: executes each lane in list order with one worker until no lane can continue. Signals only grow, so the
// order of the lanes does not matter, and more workers only help. Called by check.cpp.
#include <deque>

#include "check/proofs.hpp"

namespace tilewire::checking {
namespace {

struct Sleeper {
  int lane;
  int64_t wanted;
};

class Simulation {
 public:
  explicit Simulation(const Tasks& tasks)
      : tasks_(tasks),
        value_(tasks.signals.size()),
        sleepers_(tasks.signals.size()),
        next_(tasks.lane_begin),
        come_(tasks.meetings.size()) {}

  std::vector<int> run() {
    for (int lane = 0; lane < std::ssize(tasks_.plan.lanes); ++lane) runnable_.push_back(lane);
    while (!runnable_.empty()) {
      const int lane = runnable_.front();
      runnable_.pop_front();
      run_lane(lane);
    }
    return std::move(sequence_);
  }

  void explain_deadlock(Report& report) const {
    for (int lane = 0; lane < std::ssize(tasks_.plan.lanes); ++lane) {
      if (next_[lane] == tasks_.lane_begin[lane + 1]) continue;
      if (unsatisfied(next_[lane]) == nullptr) {
        report.add(Rule::progress, "deadlock: {} waits for the calls of all ranks, of which {} of {} are made",
                   tasks_.name(next_[lane]), come_[tasks_.meeting[next_[lane]]], tasks_.plan.team.num_ranks);
        continue;
      }
      const Use& wait = *unsatisfied(next_[lane]);
      const int64_t total = tasks_.totals[wait.signal];
      report.add(Rule::progress, "deadlock: {} waits for {} to reach {}, which stays at {}{}", tasks_.name(next_[lane]),
                 signal_name(tasks_.plan, tasks_.signals[wait.signal]), wait.amount, value_[wait.signal],
                 wait.amount > total ? fmt::format(": all posts of a call add up to {} only", total) : "");
    }
  }

 private:
  [[nodiscard]] const Use* unsatisfied(int task) const {
    for (int i = tasks_.wait_begin[task]; i < tasks_.wait_begin[task + 1]; ++i) {
      if (value_[tasks_.waits[i].signal] < tasks_.waits[i].amount) return &tasks_.waits[i];
    }
    return nullptr;
  }

  void run_lane(int lane) {
    for (int& task = next_[lane]; task < tasks_.lane_begin[lane + 1]; ++task) {
      if (const Use* wait = unsatisfied(task)) {
        sleepers_[wait->signal].push_back({lane, wait->amount});
        return;
      }
      if (tasks_.meeting[task] < 0) {
        execute(task);
      } else if (!meet(task)) {
        return;
      }
    }
  }

  void execute(int task) {
    sequence_.push_back(task);
    for (int i = tasks_.post_begin[task]; i < tasks_.post_begin[task + 1]; ++i) post(tasks_.posts[i]);
  }

  /// Start a part of a collective. The last rank to arrive executes the parts of all ranks.
  bool meet(int task) {
    const auto& calls = tasks_.meetings[tasks_.meeting[task]];
    if (++come_[tasks_.meeting[task]] < std::ssize(calls)) return false;
    for (const int call : calls) execute(call);
    for (const int call : calls) {
      if (call == task) continue;
      ++next_[tasks_.lane[call]];
      runnable_.push_back(tasks_.lane[call]);
    }
    return true;
  }

  void post(const Use& post) {
    value_[post.signal] += post.amount;
    std::erase_if(sleepers_[post.signal], [&](const Sleeper& sleeper) {
      if (sleeper.wanted > value_[post.signal]) return false;
      runnable_.push_back(sleeper.lane);
      return true;
    });
  }

  const Tasks& tasks_;
  std::vector<int64_t> value_;
  std::vector<std::vector<Sleeper>> sleepers_;
  std::vector<int> next_;
  std::vector<int64_t> come_;  ///< by meeting: number of ranks that have arrived
  std::deque<int> runnable_;
  std::vector<int> sequence_;
};

}  // namespace

std::vector<int> check_progress(const Tasks& tasks, Report& report) {
  Simulation simulation(tasks);
  std::vector<int> sequence = simulation.run();
  if (std::ssize(sequence) != tasks.size()) simulation.explain_deadlock(report);
  return sequence;
}

}  // namespace tilewire::checking
