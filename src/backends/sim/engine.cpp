// Handles events in order of time, and events of equal time in order of creation. Results depend on no addresses or
// threads, so they are reproducible to the picosecond. Called by simulate.cpp.
#include "backends/sim/engine.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/lane_roles.hpp"
#include "schedules/mapped_plan.hpp"
#include "schedules/parts.hpp"

namespace tilewire::sim {

EventEngine::EventEngine(const Plan& plan, const Machine& machine)
    : plan_(plan),
      tasks_(plan),
      costs_(plan, machine),
      flows_(costs_.when_meeting()),
      lanes_(plan.lanes.size()),
      engines_(num_devices(machine), machine.copy.engines),
      links_(costs_.network().edges().size(), 1),
      values_(tasks_.signals.size()),
      sleepers_(tasks_.signals.size()),
      meetings_(tasks_.meetings.size()),
      signal_ns_(machine.overheads.signal_ns),
      rank_end_(plan.team.num_ranks) {
  set_workers(machine.compute, machine.controller.has_value());
  set_memory(machine);
  // With a controller, which serves mainloops step by step, tiles do all waits first.
  if (machine.compute.waits_by_columns && !machine.controller) find_late_waits();
  now_ = later(0, machine.overheads.launch_ns);
}

// A serial lane has one worker. Pools with a given number of workers get it, and tiles get the remaining units. Other
// pools without a number run beside the tiles.
void EventEngine::set_workers(const ComputeUnits& compute, bool by_requests) {
  // NOTE: with a memory controller no other rule keeps lanes from using more units than the device has, so the tile
  // lanes of a rank get at most equal parts.
  const auto together = [](const Lane& lane) {
    const auto tile = std::ranges::find_if(lane.tasks, is_gemm_tile);
    return tile == lane.tasks.end() ? 1 : tile->gemm.cluster_split_k;
  };
  std::vector<int> tile_lanes(plan_.team.num_ranks);
  for (const Lane& lane : plan_.lanes) tile_lanes[lane.rank] += lane.engine == tilewire::Engine::tiles ? 1 : 0;
  const auto most = [&](const Lane& lane) {
    if (!by_requests) return std::numeric_limits<int>::max();
    const bool tiles = lane.engine == tilewire::Engine::tiles;
    return tiles ? std::max(1, compute.units / (tile_lanes[lane.rank] * together(lane))) : compute.units;
  };
  const auto asked = [&](const Lane& lane) { return std::min(lane.workers, most(lane)); };
  std::vector<int> left(plan_.team.num_ranks, compute.units);
  for (const Lane& lane : plan_.lanes) left[lane.rank] -= is_serial(lane.engine) ? 0 : asked(lane);
  const int beside = compute.side_units > 0 ? compute.side_units : compute.units;
  const auto workers = [&](const Lane& lane) {
    if (is_serial(lane.engine)) return 1;
    // Helper CTAs take tasks after other CTAs have ended; with `warpgroups` a CTA runs several tasks.
    if (lane.helped) return std::max(asked(lane), beside);
    if (lane.warpgroups) return asked(lane) * kWarpgroupsOfCta;
    if (lane.workers > 0) return asked(lane);
    if (lane.engine != tilewire::Engine::tiles) return beside;
    return std::min(most(lane), std::max(1, left[lane.rank] / together(lane)));
  };
  for (size_t i = 0; i < plan_.lanes.size(); ++i) {
    LaneState& lane = lanes_[i];
    lane.next = tasks_.lane_begin[i];
    const int count = static_cast<int>(std::min<int64_t>(workers(plan_.lanes[i]), std::ssize(plan_.lanes[i].tasks)));
    for (int worker = count - 1; worker >= 0; --worker) lane.idle.push_back(worker);
    lane.storing.assign(count, 0);
    lane.held_up.assign(count, -1);
  }
}

void EventEngine::set_memory(const Machine& machine) {
  const int devices = num_devices(machine);
  if (machine.controller) {
    controllers_.assign(devices, ChannelController(*machine.controller, machine.memory.bandwidth_GBps));
    next_request_.assign(devices, kNever);
    tiles_left_.resize(devices);
    for (int task = 0; task < tasks_.size(); ++task) tiles_left_[tasks_.rank[task]] += is_product(*tasks_.task[task]);
  }
  const auto updated = std::ranges::find(plan_.signals, kUpdatedSignals, &SignalBlock::name);
  if (!machine.tracker || updated == plan_.signals.end()) return;
  tracked_ = *updated;
  trackers_.assign(devices, TrackerTable(*machine.tracker));
  totals_ = signal_totals(plan_);
}

bool EventEngine::run() {
  std::vector<int> ended;
  for (int lane = 0; lane < std::ssize(lanes_); ++lane) to_take_.push_back(lane);
  while (true) {
    for (size_t i = 0; i < to_take_.size(); ++i) take(to_take_[i]);
    to_take_.clear();
    while (!events_.empty() && events_.top().time <= now_) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
    }
    ended.clear();
    flows_.take_ended(now_, ended);
    // NOTE: translate flows to runs first: a flow that starts now may reuse the number of a flow that has just ended.
    for (int& flow : ended) flow = run_of_flow_[flow];
    for (const int run : ended) part_ended(run);
    if (!ended.empty() || !to_take_.empty()) continue;
    flows_.settle(now_);
    const Time next = serve_memory(std::min(events_.empty() ? kNever : events_.top().time, flows_.next_stop()));
    if (next == kNever) break;
    now_ = std::max(now_, next);
    ++num_stops_;
  }
  return num_ended_ == tasks_.size();
}

// Serve requests in order of time, until the next other event or the end of an access.
Time EventEngine::serve_memory(Time next) {
  while (!controllers_.empty()) {
    const auto first = std::ranges::min_element(next_request_);
    if (*first >= next) break;
    ChannelController& controller = controllers_[first - next_request_.begin()];
    const ChannelController::Done done = controller.step();
    *first = controller.next();
    if (done.owner < 0) continue;
    part_ends(done.owner, done.time);
    if (runs_[done.owner].open == 0) next = std::min(next, runs_[done.owner].ready);
  }
  return next;
}

void EventEngine::handle(const Event& event) {
  switch (event.what) {
    case What::begin:
      begin_parts(event.index);
      break;
    case What::part:
      all_parts_ended(event.index);
      break;
    case What::land:
      land(event.index);
      break;
    case What::posted:
      post(tasks_.posts[event.index]);
      break;
    case What::ended:
      end(event.index);
      break;
  }
}

int EventEngine::new_run() {
  if (free_runs_.empty()) {
    free_runs_.push_back(static_cast<int>(runs_.size()));
    runs_.emplace_back();
  }
  const int index = free_runs_.back();
  free_runs_.pop_back();
  runs_[index] = {};
  return index;
}

void EventEngine::take(int lane) {
  LaneState& state = lanes_[lane];
  while (!state.idle.empty() && state.next < tasks_.lane_begin[lane + 1]) {
    const int index = new_run();
    Run& run = runs_[index];
    run.worker = state.idle.back();
    run.task = state.next++;
    run.taken = now_;
    run.row = row_of(state);
    run.next_wait = tasks_.wait_begin[run.task];
    state.idle.pop_back();
    wait_or_go_on(index);
  }
}

// The lowest free row in the trace of a lane. A worker can have two: its last result may still be stored while it runs
// the next task.
int EventEngine::row_of(LaneState& lane) {
  if (lane.runtime_rows.empty()) return lane.num_rows++;
  const int row = lane.runtime_rows.top();
  lane.runtime_rows.pop();
  return row;
}

// A run that has waited inside its tile continues with its current phase.
void EventEngine::wait_or_go_on(int index) {
  Run& run = runs_[index];
  if (!waits_are_over(index)) return;
  if (run.phase > 0) return start_phase(index);
  const int meeting = tasks_.meeting[run.task];
  if (meeting < 0) {
    begin(index);
    return;
  }
  meetings_[meeting].push_back(index);
  if (meetings_[meeting].size() < tasks_.meetings[meeting].size()) return;
  for (const int each : meetings_[meeting]) begin(each);
}

void EventEngine::begin(int index) {
  Run& run = runs_[index];
  if (by_engine(run) && !engines_.enter(plan_lane(run).rank, index)) return;
  run.start = now_;
  run.cost = costs_.of(task_of(run), plan_lane(run));
  cut_loop(run);
  begin_phase(index);
}

void EventEngine::start_phase(int index) {
  Run& run = runs_[index];
  if (run.phase == std::ssize(run.cost.phases)) {
    finish(index);
  } else {
    run.round = 0;
    after(run.cost.phases[run.phase].delay_ns, What::begin, index);
  }
}

// NOTE: a phase without demands needs no flow.
void EventEngine::begin_parts(int index) {
  const Phase& phase = runs_[index].cost.phases[runs_[index].phase];
  if (phase.link >= 0) {
    ensure(phase.times == 1, "a message that has link {} alone comes {} times", phase.link, phase.times);
    if (!links_.enter(phase.link, index)) return;
  }
  Run& run = runs_[index];
  run.open = 1;
  run.ready = 0;
  for (const Access& access : phase.accesses) ask(index, access);
  if (phase.first_step != Phase::kNoInputs)
    ask(index, costs_.inputs_of_step(run.cost, plan_lane(run).rank, phase.first_step + run.round));
  if (phase.demands.empty()) {
    part_ends(index, later(now_, phase.work_ns));
  } else {
    const int flow = flows_.start(phase.work_ns, phase.demands, now_);
    run_of_flow_.resize(std::max<size_t>(run_of_flow_.size(), flow + 1));
    run_of_flow_[flow] = index;
  }
}

void EventEngine::ask(int index, const Access& access) {
  if (access.bytes <= 0) return;
  ChannelController& controller = controllers_[access.device];
  runs_[index].open += controller.ask(access, index, now_) ? 1 : 0;
  next_request_[access.device] = controller.next();
}

// A part will end at `time`. The last known end becomes one event, so that a K step and its inputs need one event, not
// two.
void EventEngine::part_ends(int index, Time time) {
  Run& run = runs_[index];
  const uint64_t order = order_++;
  if (time >= run.ready) {
    run.ready = time;
    run.order = order;
  }
  if (--run.open == 0) events_.push({run.ready, run.order, What::part, index});
}

// A part ends now.
void EventEngine::part_ended(int index) {
  Run& run = runs_[index];
  if (--run.open > 0) return;
  if (run.ready > now_) {
    events_.push({run.ready, run.order, What::part, index});
  } else {
    all_parts_ended(index);
  }
}

void EventEngine::all_parts_ended(int index) {
  Run& run = runs_[index];
  if (run.landing) {
    tell(index, 0);
  } else if (++run.round < run.cost.phases[run.phase].times) {
    begin_parts(index);
  } else {
    phase_ended(index);
  }
}

void EventEngine::phase_ended(int index) {
  Run& run = runs_[index];
  if (const int link = run.cost.phases[run.phase].link; link >= 0) {
    if (const int next = links_.leave(link); next != Turns::kNobody) begin_parts(next);
  }
  ++run.phase;
  const auto phases = std::ssize(run.cost.phases);
  if (run.cost.stores_last && run.phase + 1 == phases) {
    leave_inner_loop(index);
    return;
  }
  if (run.cost.stores_last && run.phase == phases) {
    LaneState& lane = lanes_[lane_of(run)];
    lane.storing[run.worker] = 0;
    const int held_up = std::exchange(lane.held_up[run.worker], -1);
    finish(index);
    if (held_up >= 0) store(held_up);
    return;
  }
  begin_phase(index);
}

// A worker can store one result at a time; the next result waits for it.
void EventEngine::leave_inner_loop(int index) {
  Run& run = runs_[index];
  costs_.release_inputs(task_of(run), plan_lane(run));
  LaneState& lane = lanes_[lane_of(run)];
  if (lane.storing[run.worker] != 0) {
    lane.held_up[run.worker] = index;
  } else {
    store(index);
  }
}

void EventEngine::store(int index) {
  const int lane = lane_of(runs_[index]);
  const int worker = runs_[index].worker;
  lanes_[lane].storing[worker] = 1;
  begin_phase(index);
  release_worker(lane, worker);
}

// All data have been sent.
void EventEngine::finish(int index) {
  const Cost& cost = runs_[index].cost;
  if (cost.landing.empty()) {
    tell(index, cost.latency_ns);
  } else {
    after(cost.latency_ns, What::land, index);
  }
}

// All data have arrived, and are written to memory.
void EventEngine::land(int index) {
  runs_[index].landing = true;
  runs_[index].open = 1;
  runs_[index].ready = 0;
  for (const Access& access : runs_[index].cost.landing) ask(index, access);
  part_ended(index);
}

// Send the posts. A post becomes visible after the task's writes have arrived, `latency_ns` from now.
void EventEngine::tell(int index, double latency_ns) {
  const Run& run = runs_[index];
  const int rank = plan_lane(run).rank;
  for (int i = tasks_.post_begin[run.task]; i < tasks_.post_begin[run.task + 1]; ++i) {
    const int to = tasks_.signals[tasks_.posts[i].signal].rank;
    const bool with_data = std::ranges::any_of(task_of(run).writes, [&](const Write& w) { return w.to.rank == to; });
    const double own_way_ns = costs_.latency_ns(rank, to);
    const double way_ns = run.cost.pulls ? latency_ns + own_way_ns
                          : with_data    ? latency_ns
                                         : std::max(latency_ns, own_way_ns);
    after(way_ns + signal_ns_, What::posted, i);
  }
  after(latency_ns, What::ended, index);
}

void EventEngine::end(int index) {
  const Run& run = runs_[index];
  const int lane = lane_of(run);
  const int rank = plan_lane(run).rank;
  trace_.push_back({.lane = lane,
                    .worker = run.row,
                    .task = run.task - tasks_.lane_begin[lane],
                    .taken_ns = run.taken,
                    .start_ns = run.start,
                    .end_ns = now_});
  rank_end_[rank] = std::max(rank_end_[rank], now_);
  ++num_ended_;
  lanes_[lane].runtime_rows.push(run.row);
  if (!controllers_.empty() && is_product(task_of(run)) && --tiles_left_[rank] == 0) controllers_[rank].drain();
  const int next = by_engine(run) ? engines_.leave(rank) : Turns::kNobody;
  if (next != Turns::kNobody) begin(next);
  if (!run.cost.stores_last) release_worker(lane, run.worker);
  free_runs_.push_back(index);
}

void EventEngine::release_worker(int lane, int worker) {
  lanes_[lane].idle.push_back(worker);
  to_take_.push_back(lane);
}

void EventEngine::post(const checking::Use& post) {
  values_[post.signal] += post.amount;
  const Signal signal = tasks_.signals[post.signal];
  const int block = signal.index - tracked_.first;
  if (block >= 0 && block < tracked_.count) {
    const int64_t wanted = totals_[signal_id(plan_, signal)];
    const bool triggers = trackers_[signal.rank].update_workgroup(block, post.amount, wanted);
    ensure(triggers == (values_[post.signal] >= wanted),
           "tracker of device {}: block {} is not in step with its signal", signal.rank, block);
  }
  std::vector<int> awake;
  std::erase_if(sleepers_[post.signal], [&](const Sleeper& sleeper) {
    if (sleeper.wanted > values_[post.signal]) return false;
    awake.push_back(sleeper.run);
    return true;
  });
  for (const int run : awake) wait_or_go_on(run);
}

}  // namespace tilewire::sim
