// The event engine on the virtual clock: starts tasks when workers and engines are free, and wakes waiting tasks.
// Used by simulate.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "backends/sim/costs.hpp"
#include "backends/sim/flows.hpp"
#include "backends/sim/memory_controller.hpp"
#include "backends/sim/tracker.hpp"
#include "backends/sim/turns.hpp"
#include "check/tasks.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire::sim {

class EventEngine {
 public:
  EventEngine(const Plan& plan, const Machine& machine);

  /// Run until no event is left. Returns whether all tasks have ended.
  bool run();
  [[nodiscard]] Simulation result() &&;
  /// The memory controller of a device. The machine must have them.
  [[nodiscard]] ChannelController& controller(int device) { return controllers_[device]; }

 private:
  using Tasks = checking::Tasks;

  /// A task that a worker has taken.
  struct Run {
    int task = 0;
    int worker = 0;
    int row = 0;  ///< row in the trace
    Time taken = 0;
    Time start = 0;
    Cost cost{};
    int phase = 0;
    int64_t round = 0;     ///< repetition of the phase
    int open = 0;          ///< parts (flows and accesses) whose end is not known yet
    Time ready = 0;        ///< the latest known end of a part,
    uint64_t order = 0;    ///< and its rank among events of equal time
    bool landing = false;  ///< all phases have ended, and the data are being written at the destination
    int next_wait = 0;     ///< index in Tasks::waits; earlier waits are satisfied, or belong to later phases
    /// Of a tile that waits by columns: the first column of A of each phase after the first.
    std::vector<int64_t> cuts{};
  };
  struct LaneState {
    int next = 0;              ///< next task
    std::vector<int> idle;     ///< idle workers; the last one is taken next
    std::vector<int> storing;  ///< by worker: whether it is storing a result
    std::vector<int> held_up;  ///< by worker: the run that waits to store its result; -1 = none
    std::priority_queue<int, std::vector<int>, std::greater<>> runtime_rows;
    int num_rows = 0;
  };
  enum class What { begin, part, land, posted, ended };
  struct Event {
    Time time;
    uint64_t order;
    What what;
    int index;  ///< a run, or an index in Tasks::posts
    bool operator<(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };
  struct Sleeper {
    int64_t wanted;
    int run;
  };

  [[nodiscard]] const Task& task_of(const Run& run) const { return *tasks_.task[run.task]; }
  [[nodiscard]] int lane_of(const Run& run) const { return tasks_.lane[run.task]; }
  [[nodiscard]] const Lane& plan_lane(const Run& run) const { return plan_.lanes[lane_of(run)]; }
  void set_workers(const ComputeUnits& compute, bool by_requests);
  void set_memory(const Machine& machine);
  /// Whether the run needs a copy engine of its device.
  [[nodiscard]] bool by_engine(const Run& run) const {
    return task_of(run).kind == TaskKind::copy && plan_lane(run).engine == tilewire::Engine::copy;
  }
  void after(double ns, What what, int index) { events_.push({later(now_, ns), order_++, what, index}); }
  void handle(const Event& event);
  void take(int lane);
  static int row_of(LaneState& lane);
  void find_late_waits();
  /// The first column of A for which the run needs a wait; 0: it needs the wait to start.
  [[nodiscard]] int64_t column_of(const Run& run, int wait) const;
  /// Whether all waits of the run's current phase are satisfied; if not, the run sleeps.
  bool waits_are_over(int index);
  void wait_or_go_on(int index);
  void cut_loop(Run& run) const;
  void begin(int index);
  void begin_phase(int index);
  void start_phase(int index);
  void begin_parts(int index);
  void ask(int index, const Access& access);
  void part_ends(int index, Time time);
  void part_ended(int index);
  void all_parts_ended(int index);
  void phase_ended(int index);
  void land(int index);
  void tell(int index, double latency_ns);
  Time serve_memory(Time next);
  void leave_inner_loop(int index);
  void store(int index);
  void finish(int index);
  void end(int index);
  void post(const checking::Use& post);
  void release_worker(int lane, int worker);
  int new_run();

  const Plan& plan_;
  Tasks tasks_;
  std::unordered_map<int, std::vector<int64_t>> late_waits_;  ///< by task: the first column of A that needs each wait
  Costs costs_;
  Flows flows_;
  std::vector<ChannelController> controllers_;  ///< by device, if the machine has them
  std::vector<Time> next_request_;              ///< by device: when its controller serves the next request
  std::vector<TrackerTable> trackers_;          ///< by device, if the machine has them
  SignalBlock tracked_{};                       ///< the signals that Trackers count
  std::vector<int64_t> totals_;                 ///< by signal_id, if Trackers count
  std::vector<LaneState> lanes_;
  Turns engines_;                               ///< copy engines, by device
  Turns links_;                                 ///< links that store and forward: one message at a time
  std::vector<int64_t> values_;                 ///< by signal
  std::vector<std::vector<Sleeper>> sleepers_;  ///< by signal
  std::vector<std::vector<int>> meetings_;      ///< by meeting: runs that have arrived
  std::vector<Run> runs_;
  std::vector<int> free_runs_;
  std::vector<int> run_of_flow_;
  std::vector<int> to_take_;  ///< lanes with a newly idle worker
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  Time now_ = 0;
  double signal_ns_;
  std::vector<int64_t> tiles_left_;  ///< by device: GEMM tasks that have not ended
  int num_ended_ = 0;
  std::vector<Time> rank_end_;
  std::vector<TraceEvent> trace_;
  int64_t num_stops_ = 0;
};

}  // namespace tilewire::sim
