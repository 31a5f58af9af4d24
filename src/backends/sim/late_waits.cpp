// Tiles that start with the columns of A that have arrived, and wait for later columns in the mainloop.
// Part of the event engine.
#include <algorithm>
#include <utility>

#include "backends/sim/engine.hpp"
#include "core/gemm_tasks.hpp"

namespace tilewire::sim {

// NOTE: tiles wait for ready handshakes at the start, because `signal_ns` was fitted so. Tiles whose A is an input
// defer only the waits for addends. Tiles of fp32 do all waits for A first.
void EventEngine::find_late_waits() {
  for (int t = 0; t < tasks_.size(); ++t) {
    const Task& task = *tasks_.task[t];
    if (task.kind != TaskKind::compute || !loads_early(task)) continue;
    const bool wide = plan_.buffers[task.reads[0].buffer].dtype == DType::fp32;
    const bool late = task.waits.front().purpose == Purpose::data && takes_arrivals(plan_, task) && !wide;
    if (!late && task.addends.empty()) continue;
    for (const Wait& wait : task.waits)
      late_waits_[t].push_back(late || is_for_addends(task, wait) ? wait.from_col : 0);
  }
}

int64_t EventEngine::column_of(const Run& run, int wait) const {
  const auto late = late_waits_.find(run.task);
  return late == late_waits_.end() ? 0 : late->second[wait - tasks_.wait_begin[run.task]];
}

bool EventEngine::waits_are_over(int index) {
  Run& run = runs_[index];
  const int64_t here = run.phase == 0 ? 0 : run.cuts[run.phase - 1];
  for (; run.next_wait < tasks_.wait_begin[run.task + 1]; ++run.next_wait) {
    const checking::Use& wait = tasks_.waits[run.next_wait];
    if (values_[wait.signal] >= wait.amount || column_of(run, run.next_wait) > here) continue;
    sleepers_[wait.signal].push_back({wait.amount, index});
    return false;
  }
  return true;
}

// Split the mainloop of a tile that waits by columns: one phase from each column for which it may wait.
void EventEngine::cut_loop(Run& run) const {
  const auto late = late_waits_.find(run.task);
  if (late == late_waits_.end()) return;
  run.cuts = late->second;
  std::ranges::sort(run.cuts);
  run.cuts.erase(std::unique(run.cuts.begin(), run.cuts.end()), run.cuts.end());
  std::erase(run.cuts, 0);
  const Phase loop = run.cost.phases.front();
  const int64_t cols = task_of(run).reads[0].cols;
  std::vector<Phase> parts;
  for (size_t i = 0; i <= run.cuts.size(); ++i) {
    const int64_t begin = i == 0 ? 0 : run.cuts[i - 1];
    const int64_t end = i == run.cuts.size() ? cols : run.cuts[i];
    Phase& part = parts.emplace_back(loop);
    part.work_ns *= static_cast<double>(end - begin) / static_cast<double>(cols);
    if (i > 0) part.delay_ns = 0;
  }
  auto& phases = run.cost.phases;
  phases.insert(phases.erase(phases.begin()), parts.begin(), parts.end());
}

void EventEngine::begin_phase(int index) {
  Run& run = runs_[index];
  if (run.phase > 0 && run.phase <= std::ssize(run.cuts)) {
    run.next_wait = tasks_.wait_begin[run.task];
    if (!waits_are_over(index)) return;
  }
  start_phase(index);
}

}  // namespace tilewire::sim
