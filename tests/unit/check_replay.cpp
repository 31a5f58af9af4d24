// Random interleavings of a plan's calls, on tokens instead of numbers: a token identifies the task and the call that
// wrote an
// element. Called by check_replay_test.cpp.
#include "check_replay.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "core/ll.hpp"

namespace tilewire::check_plans {
namespace {

/// The value of LL data before they are written.
constexpr uint64_t kMissing = ~uint64_t{0};

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct Worker {
  int lane = 0;
  int64_t task = -1;    ///< -1: none taken
  int64_t posted = -1;  ///< posts made; -1: not started, or still computing
  bool computing = false;
  bool published = false;         ///< its LL data is there
  std::vector<uint64_t> taken{};  ///< of the LL data that it polls
  uint64_t seen = 0;
};

struct RankState {
  int call = -1;
  bool inside = false;
  std::vector<int> lanes{};
};

class Replay {
 public:
  Replay(const Plan& plan, std::mt19937_64& random) : plan_(plan), random_(random), signals_(num_signals(plan)) {
    totals_ = signal_totals(plan);
    values_.resize(totals_.size());
    ranks_.resize(plan.team.num_ranks);
    for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
      for (const Buffer& buffer : plan.buffers) {
        const Shape shape = shape_on(buffer, rank);
        memory_.emplace_back(static_cast<size_t>(buffer.copies * shape.rows * shape.cols), buffer.ll ? kMissing : 0);
      }
    }
    next_.resize(plan.lanes.size());
    left_.resize(plan.lanes.size());
    for (int lane = 0; lane < std::ssize(plan.lanes); ++lane) ranks_[plan.lanes[lane].rank].lanes.push_back(lane);
    number_meetings();
  }

  /// Expected reads of every task and outputs of every rank, by call: filled when `orderly`, else compared.
  struct Expected {
    std::vector<std::vector<std::vector<uint64_t>>> reads;  ///< [call][lane][task]
    std::vector<std::vector<uint64_t>> outputs;             ///< [call][rank]
  };

  std::optional<std::string> run(int num_calls, Expected& expected, bool orderly) {
    expected_ = &expected;
    orderly_ = orderly;
    if (orderly) {
      expected.outputs.assign(num_calls, std::vector<uint64_t>(ranks_.size()));
      for (int call = 0; call < num_calls; ++call) {
        auto& lanes = expected.reads.emplace_back();
        for (const Lane& lane : plan_.lanes) lanes.emplace_back(lane.tasks.size());
      }
    }
    for (int lane = 0; lane < std::ssize(plan_.lanes); ++lane) {
      const bool pool = !is_serial(plan_.lanes[lane].engine) && !orderly;
      for (uint64_t i = 0; i < (pool ? 1 + random_() % 4 : 1); ++i) workers_.push_back({.lane = lane});
    }
    // Some ranks are much faster than others.
    for (size_t rank = 0; rank < ranks_.size(); ++rank) speed_.push_back(orderly ? 1 : 1 + (random_() % 3) * 20);
    const int64_t patience = 4000 + 400 * (num_tasks(plan_) + std::ssize(ranks_));
    for (int64_t idle = 0; idle < patience && !wrong_; ++idle) {
      if (is_over(num_calls)) return std::nullopt;
      const size_t choice = random_() % (workers_.size() + ranks_.size());
      const bool moved = choice < workers_.size() ? step_worker(workers_[choice])
                                                  : step_rank(static_cast<int>(choice - workers_.size()), num_calls);
      if (moved) idle = 0;
    }
    return wrong_ ? wrong_ : "nothing moves any more";
  }

 private:
  [[nodiscard]] bool slow(int rank) { return random_() % speed_[rank] != 0; }
  [[nodiscard]] bool is_over(int num_calls) const {
    for (const RankState& rank : ranks_) {
      if (rank.inside || rank.call + 1 < num_calls) return false;
    }
    return true;
  }
  [[nodiscard]] uint64_t token(int rank, int64_t lane, int64_t task) const {
    return mix(mix(mix(ranks_[rank].call + 1) + lane) + task);
  }
  template <class Visit>
  void for_each(const Region& region, const Visit& visit) {
    auto& memory = memory_[region.rank * plan_.buffers.size() + region.buffer];
    const Shape shape = shape_on(plan_.buffers[region.buffer], region.rank);
    const int64_t copy = call_ % plan_.buffers[region.buffer].copies * shape.rows * shape.cols;
    for (int64_t row = region.row; row < region.row + region.rows; ++row) {
      for (int64_t col = region.col; col < region.col + region.cols; ++col)
        visit(memory[copy + row * shape.cols + col]);
    }
  }
  [[nodiscard]] uint64_t hash(const Region& region) {
    uint64_t sum = 1;
    for_each(region, [&](uint64_t& element) { sum = mix(sum + element); });
    return sum;
  }
  [[nodiscard]] uint64_t hash_reads(const Task& task) {
    uint64_t sum = 2;
    for (const Region& region : task.reads) sum = mix(sum + hash(region));
    for (const EpilogueStep& step : task.epilogue) sum = mix(sum + (step.operand ? hash(*step.operand) : 0));
    return sum;
  }
  [[nodiscard]] Region whole(int rank, int buffer) const {
    const Shape shape = shape_on(plan_.buffers[buffer], rank);
    return {.rank = rank, .buffer = buffer, .rows = shape.rows, .cols = shape.cols};
  }

  /// Enter a call, or leave it when all lanes have ended. The caller then changes inputs and outputs.
  bool step_rank(int rank, int num_calls) {
    RankState& state = ranks_[rank];
    if (slow(rank)) return true;
    if (!state.inside) {
      if (state.call + 1 == num_calls) return false;
      if (orderly_) {
        for (const RankState& other : ranks_) {
          if (other.call < state.call || (other.call == state.call && other.inside)) return false;
        }
      }
      state.inside = true;
      ++state.call;
      for (const int lane : state.lanes) next_[lane] = 0, left_[lane] = std::ssize(plan_.lanes[lane].tasks);
      scribble(rank, token(rank, -1, 0));
      return true;
    }
    for (const int lane : state.lanes) {
      if (left_[lane] > 0) return false;
    }
    uint64_t outputs = 3;
    for (int buffer = 0; buffer < std::ssize(plan_.buffers); ++buffer) {
      if (plan_.buffers[buffer].scope == Scope::output) outputs = mix(outputs + hash(whole(rank, buffer)));
    }
    compare(expected_->outputs[state.call][rank], outputs, [&] { return fmt::format("outputs of rank {}", rank); });
    scribble(rank, random_());
    state.inside = false;
    return true;
  }

  void scribble(int rank, uint64_t with) {
    for (int buffer = 0; buffer < std::ssize(plan_.buffers); ++buffer) {
      const Scope scope = plan_.buffers[buffer].scope;
      const uint64_t first = scope == Scope::output ? random_() : with;
      if (scope == Scope::input || scope == Scope::output)
        for_each(whole(rank, buffer), [&](uint64_t& element) { element = mix(first + buffer); });
    }
  }

  bool step_worker(Worker& worker) {
    const Lane& lane = plan_.lanes[worker.lane];
    if (!ranks_[lane.rank].inside) return false;
    call_ = ranks_[lane.rank].call;
    if (slow(lane.rank)) return true;
    if (worker.task < 0) {
      if (next_[worker.lane] == std::ssize(lane.tasks)) return false;
      worker = {.lane = worker.lane, .task = next_[worker.lane]++};
      return true;
    }
    const Task& task = lane.tasks[worker.task];
    if (worker.posted >= 0) {
      if (worker.posted == std::ssize(task.posts)) {
        --left_[worker.lane];
        worker.task = -1;
        return true;
      }
      const Post& post = task.posts[worker.posted++];
      values_[post.signal.rank * signals_ + post.signal.index] += post.add;
      return true;
    }
    return worker.computing ? finish(worker, task) : start(worker, task);
  }

  bool start(Worker& worker, const Task& task) {
    const int rank = plan_.lanes[worker.lane].rank;
    for (const int other : ranks_[rank].lanes) {
      if (plan_.lanes[other].stage < plan_.lanes[worker.lane].stage && left_[other] > 0) return false;
    }
    for (const Wait& wait : task.waits) {
      const size_t signal = wait.signal.rank * signals_ + wait.signal.index;
      if (values_[signal] < ranks_[rank].call * totals_[signal] + wait.at_least) return false;
    }
    if (looks(worker, task) && !take(worker, task)) return false;
    worker.computing = true;
    if (const auto found = meeting_.find({worker.lane, worker.task}); found != meeting_.end())
      ++met_[{found->second, ranks_[rank].call}];
    worker.seen = hash_of(worker, task);
    // A store may appear at any moment from now on.
    for (const Write& write : task.writes) {
      if (write.mode == WriteMode::store && !is_ll(plan_, write.to))
        for_each(write.to, [&](uint64_t& element) { element = random_(); });
    }
    // LL data may be there before all else that the task does.
    if (!orderly_ && random_() % 2 == 0) publish(worker, task);
    return true;
  }

  [[nodiscard]] bool looks(const Worker& worker, const Task& task) const {
    return polls(plan_, plan_.lanes[worker.lane], task);
  }

  /// Take the LL data of a task's reads that have arrived. Returns whether it has all.
  bool take(Worker& worker, const Task& task) {
    size_t index = 0;
    bool all = true;
    for (const Region& region : task.reads) {
      for_each(region, [&](uint64_t& element) {
        if (index == worker.taken.size()) worker.taken.push_back(kMissing);
        uint64_t& mine = worker.taken[index++];
        if (mine == kMissing) mine = std::exchange(element, kMissing);
        all = all && mine != kMissing;
      });
    }
    return all;
  }

  void publish(Worker& worker, const Task& task) {
    const uint64_t mine = token(plan_.lanes[worker.lane].rank, worker.lane, worker.task);
    worker.published = true;
    for (const Write& write : task.writes) {
      if (!is_ll(plan_, write.to)) continue;
      for_each(write.to, [&](uint64_t& element) {
        if (element != kMissing) blame(worker, "stores LL data that was not taken");
        element = mine;
      });
    }
  }

  /// A hash of everything that a task reads.
  [[nodiscard]] uint64_t hash_of(const Worker& worker, const Task& task) {
    for (const EpilogueStep& step : task.epilogue) {
      if (step.operand) find_missing(worker, *step.operand);
    }
    if (!looks(worker, task)) {
      for (const Region& region : task.reads) find_missing(worker, region);
      return hash_reads(task);
    }
    uint64_t sum = 2;
    for (const uint64_t element : worker.taken) sum = mix(sum + element);
    for (const EpilogueStep& step : task.epilogue) sum = mix(sum + (step.operand ? hash(*step.operand) : 0));
    return sum;
  }

  void find_missing(const Worker& worker, const Region& region) {
    if (!is_ll(plan_, region)) return;
    for_each(region, [&](uint64_t& element) {
      if (element == kMissing) blame(worker, "reads LL data that is missing");
    });
  }

  void blame(const Worker& worker, const std::string& what) {
    if (!wrong_) wrong_ = task_name(plan_, worker.lane, worker.task) + " " + what;
  }

  /// The n-th collective calls of all ranks are one collective.
  void number_meetings() {
    std::vector<int> calls(ranks_.size(), 0);
    for (int lane = 0; lane < std::ssize(plan_.lanes); ++lane) {
      const Lane& where = plan_.lanes[lane];
      for (int64_t task = 0; task < std::ssize(where.tasks); ++task) {
        if (where.tasks[task].kind == TaskKind::collective_call) meeting_[{lane, task}] = calls[where.rank]++;
      }
    }
  }

  /// Whether all ranks have begun their part of the collective, in this call.
  [[nodiscard]] bool all_met(const Worker& worker) {
    const auto found = meeting_.find({worker.lane, worker.task});
    if (found == meeting_.end()) return true;
    const int call = ranks_[plan_.lanes[worker.lane].rank].call;
    return met_[{found->second, call}] == std::ssize(ranks_);
  }

  bool finish(Worker& worker, const Task& task) {
    if (!all_met(worker)) return false;
    const int rank = plan_.lanes[worker.lane].rank;
    const auto name = [&] { return task_name(plan_, worker.lane, worker.task); };
    uint64_t& wanted = expected_->reads[ranks_[rank].call][worker.lane][worker.task];
    compare(wanted, worker.seen, name);
    compare(wanted, hash_of(worker, task), name);
    if (!worker.published) publish(worker, task);
    const uint64_t mine = token(rank, worker.lane, worker.task);
    for (const Write& write : task.writes) {
      if (is_ll(plan_, write.to)) continue;
      for_each(write.to, [&](uint64_t& element) { element = write.mode == WriteMode::store ? mine : element + mine; });
    }
    worker.computing = false;
    worker.posted = 0;
    return true;
  }

  template <class Name>
  void compare(uint64_t& wanted, uint64_t seen, const Name& name) {
    if (orderly_) wanted = seen;
    if (wanted != seen && !wrong_) wrong_ = name() + " saw other data than in an orderly execution";
  }

  const Plan& plan_;
  std::mt19937_64& random_;
  int64_t signals_;
  std::vector<int64_t> totals_, values_;
  std::vector<std::vector<uint64_t>> memory_;
  int64_t call_ = 0;  ///< of the rank that acts
  std::vector<RankState> ranks_;
  std::vector<uint64_t> speed_;
  std::vector<Worker> workers_;
  std::map<std::pair<int, int64_t>, int> meeting_;  ///< of a lane's task
  std::map<std::pair<int, int>, int64_t> met_;      ///< by meeting and call: ranks that have begun their part
  std::vector<int64_t> next_, left_;                ///< by lane: next task to take, tasks not done
  Expected* expected_ = nullptr;
  bool orderly_ = false;
  std::optional<std::string> wrong_;
};

}  // namespace

std::optional<std::string> replay(const Plan& plan, int num_calls, std::mt19937_64& random) {
  Replay::Expected expected;
  if (const auto wrong = Replay(plan, random).run(num_calls, expected, true)) return "orderly execution: " + *wrong;
  return Replay(plan, random).run(num_calls, expected, false);
}

}  // namespace tilewire::check_plans
