// The GEMM of a plan without its communication, and the reverse.
// Called by bench and the simulator.
#include "schedules/parts.hpp"

#include <utility>

#include "core/gemm_tasks.hpp"

namespace tilewire {
namespace {

// The same place on `rank`, where it has one.
Region on_rank(const Plan& plan, Region region, int rank) {
  const Shape shape = shape_on(plan.buffers[region.buffer], rank);
  if (region.row + region.rows <= shape.rows && region.col + region.cols <= shape.cols) region.rank = rank;
  return region;
}

// Columns of a result that go to the same place on several ranks: on one rank, one below the other where it has room.
void part_columns(const Plan& plan, Task& task) {
  if (task.kind != TaskKind::gemm_call || task.writes.size() == 1) return;
  int64_t row = 0;
  for (Write& write : task.writes) {
    if (row + write.to.rows <= shape_on(plan.buffers[write.to.buffer], write.to.rank).rows) write.to.row = row;
    row += write.to.rows;
  }
}

}  // namespace

Plan gemm_only(const Plan& plan) {
  Plan part{plan.op, plan.note, plan.target, plan.team, plan.buffers, plan.signals};
  for (const Lane& lane : plan.lanes) {
    Lane kept{lane.rank, lane.engine, lane.name, lane.workers};
    for (const Task& task : lane.tasks) {
      if (!is_product(task)) continue;
      Task& alone = kept.tasks.emplace_back(task);
      alone.waits.clear();
      alone.posts.clear();
      for (Write& write : alone.writes) write.to = on_rank(plan, write.to, lane.rank);
      part_columns(plan, alone);
    }
    if (!kept.tasks.empty()) part.lanes.push_back(std::move(kept));
  }
  return part;
}

Plan communication_only(Plan plan) {
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (!is_product(task) && !is_grouped_gemm(task)) continue;
      task = {.kind = TaskKind::sync, .waits = std::move(task.waits), .posts = std::move(task.posts)};
    }
  }
  return plan;
}

}  // namespace tilewire
