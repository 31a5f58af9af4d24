// Executes a plan: the workers of lanes take tasks, wait, execute, post.
// Called by Op through Program.
#include "backends/host/program.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "backends/host/pool.hpp"
#include "backends/host/rules.hpp"
#include "backends/host/workspace.hpp"
#include "backends/messages.hpp"
#include "core/caught.hpp"
#include "core/cores.hpp"
#include "core/implied_order.hpp"
#include "core/text.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::host {
namespace {

/// The plan with this rank's lanes only, and the lanes' indices in the whole plan.
struct Share {
  Plan plan;
  std::vector<int> lane_indices;
};

/// Whether a lane has library GEMMs, which run on as many threads as there are cores.
bool calls_library(const Lane& lane) {
  return is_serial(lane.engine) && std::any_of(lane.tasks.begin(), lane.tasks.end(),
                                               [](const Task& task) { return task.kind == TaskKind::gemm_call; });
}

Share share_of(const Plan& plan, int rank) {
  Share share{{plan.op, {}, plan.target, plan.team, plan.buffers, plan.signals, {}}, {}};
  // NOTE: put library lanes first: the same thread then calls the library in all programs. OpenMP keeps a set of
  // threads for each calling thread.
  for (const bool library : {true, false}) {
    for (int lane = 0; lane < std::ssize(plan.lanes); ++lane) {
      if (plan.lanes[lane].rank != rank || plan.lanes[lane].tasks.empty()) continue;
      if (calls_library(plan.lanes[lane]) != library) continue;
      share.plan.lanes.push_back(plan.lanes[lane]);
      share.lane_indices.push_back(lane);
    }
  }
  return share;
}

/// Number of cores that this rank may use, from the masks and quotas of all ranks. Collective.
int cores_of(HostGroup& group) {
  CoreShare& share = group.pool().share();
  return share.of(exchange(group, "load", share.mine()), group.rank());
}

/// Number of workers of a lane. `ctas`: the plan is lowered for GPUs, so Lane::workers counts CTAs and is ignored.
int workers_of(const Lane& lane, int cores, bool ctas) {
  if (is_serial(lane.engine)) return 1;
  // Give lanes that only move data one worker, and leave the cores to lanes that multiply.
  const bool copies =
      std::all_of(lane.tasks.begin(), lane.tasks.end(), [](const Task& task) { return task.kind == TaskKind::copy; });
  const int wide = lane.engine == Engine::tiles && !copies ? cores : 1;
  return static_cast<int>(std::min<int64_t>(lane.workers > 0 && !ctas ? lane.workers : wide, std::ssize(lane.tasks)));
}

/// A wait or a post with the address of its counter.
struct SlotWait {
  Slot* slot = nullptr;
  uint64_t at_least = 0;
  uint64_t total = 0;  ///< sum of all posts in one call
};
struct SlotPost {
  Slot* slot = nullptr;
  uint64_t add = 0;
};

/// A lane during a call. Task i has the waits [first_wait[i], first_wait[i + 1]), and the same for posts.
struct RunningLane {
  const Lane* lane = nullptr;
  int index = 0;  ///< index in the whole plan
  std::vector<SlotWait> waits;
  std::vector<SlotPost> posts;
  std::vector<size_t> first_wait{0};
  std::vector<size_t> first_post{0};
  alignas(64) std::atomic<int64_t> next{0};
};

struct Worker {
  Worker(RunningLane& where, int number) : lane(where), index(number) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() = default;
  /// Sleep for a random time, for tests of skewed ranks.
  void dawdle(int64_t max_us) {
    std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution<int64_t>(0, max_us)(random)));
  }
  RunningLane& lane;
  int index;
  int64_t task = 0;  ///< the task taken last
  TaskRunner::Callbacks callbacks;
  std::minstd_rand random{std::random_device{}()};
  std::vector<TraceEvent> events;
};

class HostProgram final : public Program {
 public:
  HostProgram(HostGroup& group, const Plan& plan);
  void run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const RunOptions& options) override;
  [[nodiscard]] Trace trace() const override;

 private:
  void resolve(RunningLane& lane, const std::vector<int64_t>& totals) const;
  void make_workers();
  void work(Worker& worker, TaskRunner& runner);
  void run_task(Worker& worker, TaskRunner& runner, int64_t task);
  void wait_for(const Worker& worker, int64_t task, size_t wait) const;
  void check_whole(const Worker& worker) const;
  void look_again(const Worker& worker, const Region& missing, int64_t& deadline_ns) const;
  void fail_with(const Error& error);

  HostGroup& group_;
  Share share_;
  Workspace workspace_;
  std::vector<std::unique_ptr<RunningLane>> lanes_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by step of the pool; step 0 runs in the calling thread
  int cores_ = 1;
  uint64_t calls_ = 0;
  RunOptions options_;
  std::atomic<bool> failed_{false};
  std::mutex failure_guard_;
  std::optional<Error> failure_;
};

HostProgram::HostProgram(HostGroup& group, const Plan& plan)
    : group_(group), share_(share_of(plan, group.rank())), workspace_(group, plan, share_.plan) {
  const std::vector<int64_t> totals = signal_totals(plan);
  for (size_t i = 0; i < share_.plan.lanes.size(); ++i) {
    lanes_.push_back(std::make_unique<RunningLane>());
    lanes_.back()->lane = &share_.plan.lanes[i];
    lanes_.back()->index = share_.lane_indices[i];
    resolve(*lanes_.back(), totals);
  }
  // NOTE: this exchange also keeps ranks from posting before all ranks' signals are zero.
  cores_ = cores_of(group);
  make_workers();
}

void HostProgram::make_workers() {
  const std::string& target = share_.plan.target;
  const bool ctas = !target.empty() && target != host_target().name;
  for (const auto& lane : lanes_) {
    const int count = workers_of(*lane->lane, cores_, ctas);
    for (int index = 0; index < count; ++index) {
      Worker& worker = *workers_.emplace_back(std::make_unique<Worker>(*lane, index));
      worker.callbacks = {
          [this, &worker] { check_whole(worker); },
          [this, &worker](const Region& missing, int64_t& deadline_ns) { look_again(worker, missing, deadline_ns); }};
    }
  }
  agree(group_, [&] {
    group_.pool().grow(static_cast<int>(workers_.size()));
    return std::string();
  });
}

void HostProgram::resolve(RunningLane& lane, const std::vector<int64_t>& totals) const {
  for (const Task& task : lane.lane->tasks) {
    for (const Wait& wait : task.waits) {
      const int64_t total = totals[signal_id(share_.plan, wait.signal)];
      lane.waits.push_back(
          {&workspace_.slot(wait.signal), static_cast<uint64_t>(wait.at_least), static_cast<uint64_t>(total)});
    }
    for (const Post& post : task.posts) {
      lane.posts.push_back({&workspace_.slot(post.signal), static_cast<uint64_t>(post.add)});
    }
    lane.first_wait.push_back(lane.waits.size());
    lane.first_post.push_back(lane.posts.size());
  }
}

void HostProgram::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const RunOptions& options) {
  workspace_.check(inputs, outputs);
  const Pool::Turn turn(group_.pool());
  group_.begin_collective();
  workspace_.bind(inputs, outputs);
  workspace_.begin_call(calls_);
  options_ = options;
  for (const auto& lane : lanes_) lane->next.store(0, std::memory_order_relaxed);
  for (const auto& worker : workers_) {
    worker->events.clear();
    if (options_.trace) worker->events.reserve(worker->lane.lane->tasks.size());
  }
  // NOTE: workers write to the caller's tensors until they end. They end soon after a peer is lost.
  if (!workers_.empty()) {
    group_.pool().run(static_cast<int>(workers_.size()),
                      [this](int index, TaskRunner& runner) { work(*workers_[index], runner); });
  }
  ++calls_;
  if (failure_) throw *failure_;
  // A call may succeed on this rank without any wait for the rank that died.
  group_.check_whole_at_end(share_.plan.op);
  group_.end_collective();
}

void HostProgram::work(Worker& worker, TaskRunner& runner) {
  try {
    const int gemm_threads = is_serial(worker.lane.lane->engine) ? cores_ : 1;
    runner.begin_call(share_.plan, workspace_.addresses(), gemm_threads, worker.callbacks);
    const int64_t count = std::ssize(worker.lane.lane->tasks);
    while (!failed_.load(std::memory_order_relaxed)) {
      const int64_t task = worker.lane.next.fetch_add(1, std::memory_order_relaxed);
      if (task >= count) return;
      worker.task = task;
      check_whole(worker);
      run_task(worker, runner, task);
    }
  } catch (...) {
    fail_with(caught_error());
  }
}

void HostProgram::run_task(Worker& worker, TaskRunner& runner, int64_t task) {
  const RunningLane& lane = worker.lane;
  TraceEvent event{lane.index, worker.index, task};
  if (options_.trace) event.taken_ns = now_ns();
  if (options_.max_delay_us > 0) worker.dawdle(options_.max_delay_us);
  for (size_t wait = lane.first_wait[task]; wait < lane.first_wait[task + 1]; ++wait) wait_for(worker, task, wait);
  if (options_.trace) event.start_ns = now_ns();
  runner.run(lane.lane->tasks[task]);
  for (size_t i = lane.first_post[task]; i < lane.first_post[task + 1]; ++i)
    post(*lane.posts[i].slot, lane.posts[i].add);
  if (!options_.trace) return;
  event.end_ns = now_ns();
  worker.events.push_back(event);
}

void HostProgram::wait_for(const Worker& worker, int64_t task, size_t wait) const {
  const SlotWait& what = worker.lane.waits[wait];
  const uint64_t wanted = calls_ * what.total + what.at_least;
  if (reached(*what.slot, wanted)) return;
  group_.wait(*what.slot, wanted, [&](uint64_t seen) {
    const Lane& lane = *worker.lane.lane;
    const Wait& planned = lane.tasks[task].waits[wait - worker.lane.first_wait[task]];
    return WaitReport{share_.plan.op, group_.rank(), lane.name, task, signal_name(share_.plan, planned.signal),
                      wanted,         seen};
  });
}

void HostProgram::check_whole(const Worker& worker) const {
  if (!group_.segment().broken()) return;
  group_.check_whole([&] {
    return fmt::format("{}: rank {}, lane {}, task {} is stopped", share_.plan.op, group_.rank(),
                       worker.lane.lane->name, worker.task);
  });
}

void HostProgram::look_again(const Worker& worker, const Region& missing, int64_t& deadline_ns) const {
  if (deadline_ns == 0) deadline_ns = group_.deadline_ns();
  std::this_thread::yield();
  const Buffer& buffer = share_.plan.buffers[missing.buffer];
  group_.keep_waiting(deadline_ns, {.op = share_.plan.op,
                                    .rank = group_.rank(),
                                    .lane = worker.lane.lane->name,
                                    .task = worker.task,
                                    .signal = fmt::format("the data of {} on rank {} from row {}, column {} on,",
                                                          buffer.name, missing.rank, missing.row, missing.col),
                                    .wanted = 1});
}

void HostProgram::fail_with(const Error& error) {
  {
    const std::lock_guard lock(failure_guard_);
    if (!failure_) failure_ = error;
  }
  failed_.store(true, std::memory_order_relaxed);
  group_.fail_with(error);
}

Trace HostProgram::trace() const {
  Trace trace;
  for (const auto& worker : workers_) {
    trace.events.insert(trace.events.end(), worker->events.begin(), worker->events.end());
  }
  std::sort(trace.events.begin(), trace.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::pair(a.lane, a.taken_ns) < std::pair(b.lane, b.taken_ns);
  });
  return trace;
}

}  // namespace

std::unique_ptr<Program> load_program(HostGroup& group, const Plan& plan) {
  validate(plan);
  require(plan.team.num_ranks == group.team().num_ranks, "a plan for {} ranks in a team of {}", plan.team.num_ranks,
          group.team().num_ranks);
  if (const auto missing = group.unsupported(plan); !missing.empty()) {
    fail(ErrorKind::unsupported, "the host cannot do: {}", fmt::join(missing, ", "));
  }
  require_runnable(plan);
  return std::make_unique<HostProgram>(group, has_stages(plan) ? with_stage_signals(plan) : plan);
}

}  // namespace tilewire::host
