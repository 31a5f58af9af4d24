// Loads that come before all of a product's waits (Wait::from_col), as tasks of their own.
// Called by check.cpp.
#include "check/early_loads.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/gemm_tasks.hpp"

namespace tilewire::checking {
namespace {

/// Columns [begin, end) of A, and all of B, are read when the waits up to `begin` are over; then the product is told.
Task early_load(const Task& product, int64_t begin, int64_t end, Signal done) {
  Task load{.kind = TaskKind::sync, .posts = {{done}}};
  Region a = product.reads[0];
  a.col += begin;
  a.cols = end - begin;
  load.reads = {a, product.reads[1]};
  for (const Wait& wait : product.waits) {
    if (wait.from_col > begin) continue;
    load.waits.push_back(wait);
    load.waits.back().from_col = 0;
  }
  return load;
}

}  // namespace

EarlyLoads with_early_loads(const Plan& plan) {
  EarlyLoads all{plan, {}};
  int next_signal = num_signals(plan);
  for (Lane& lane : all.plan.lanes) {
    std::vector<Task> tasks;
    std::vector<int64_t>& places = all.places.emplace_back();
    for (int64_t index = 0; index < std::ssize(lane.tasks); ++index) {
      Task& task = lane.tasks[index];
      if (loads_early(task)) {
        std::set<int64_t> cuts{0};
        for (const Wait& wait : task.waits) cuts.insert(wait.from_col);
        const Task product = task;
        for (Wait& wait : task.waits) wait.from_col = 0;
        for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
          const Signal done{lane.rank, next_signal++};
          tasks.push_back(early_load(product, *cut, *std::next(cut), done));
          places.push_back(index);
          task.waits.push_back({done});
        }
      }
      tasks.push_back(std::move(task));
      places.push_back(index);
    }
    lane.tasks = std::move(tasks);
  }
  if (next_signal > num_signals(plan))
    all.plan.signals.push_back({"loaded early", num_signals(plan), next_signal - num_signals(plan)});
  return all;
}

}  // namespace tilewire::checking
