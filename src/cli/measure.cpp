// Parts of plans, and turns.
// Called by bench.
#include "cli/measure.hpp"

#include <chrono>

#include "core/text.hpp"
#include "tuner/measure.hpp"

namespace tilewire::cli {
namespace {

// The same place on `rank`, where it has one.
Region on_rank(const Plan& plan, Region region, int rank) {
  const Shape shape = shape_on(plan.buffers[region.buffer], rank);
  if (region.row + region.rows <= shape.rows && region.col + region.cols <= shape.cols) region.rank = rank;
  return region;
}

double run_once(Group& group, Program& program, const RankTensors& tensors) {
  using Clock = std::chrono::steady_clock;
  group.barrier();
  const Clock::time_point start = Clock::now();
  program.run(tensors.inputs(), tensors.outputs(), {});
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

}  // namespace

bool is_gemm(const Task& task) { return task.kind == TaskKind::compute || task.kind == TaskKind::gemm_call; }

Plan gemm_only(const Plan& plan) {
  Plan part = plan;
  part.lanes.clear();
  for (const Lane& lane : plan.lanes) {
    Lane kept = lane;
    kept.tasks.clear();
    for (const Task& task : lane.tasks) {
      if (!is_gemm(task)) continue;
      Task& alone = kept.tasks.emplace_back(task);
      alone.waits.clear();
      alone.posts.clear();
      for (Write& write : alone.writes) write.to = on_rank(plan, write.to, lane.rank);
    }
    if (!kept.tasks.empty()) part.lanes.push_back(std::move(kept));
  }
  return part;
}

Plan communication_only(const Plan& plan) {
  Plan part = plan;
  for (Lane& lane : part.lanes) {
    for (Task& task : lane.tasks) {
      if (is_gemm(task)) task = {.kind = TaskKind::sync, .waits = task.waits, .posts = task.posts};
    }
  }
  return part;
}

Contender contender(Group& group, const std::string& name, const Plan& plan) {
  if (num_tasks(plan) == 0) return {name, nullptr, {}};
  const std::vector<std::string> missing = group.unsupported(plan);
  if (!missing.empty()) {
    fail(ErrorKind::unsupported, "the {} backend cannot do {}", group.backend(), fmt::join(missing, ", "));
  }
  validate(plan);
  return {name, group.load(plan), {}};
}

void measure_in_turn(Group& group, const RankTensors& tensors, std::vector<Contender>& contenders, const Turns& turns,
                     const std::function<void(const std::string&)>& show) {
  for (int turn = -turns.warmup; turn < turns.measured; ++turn) {
    for (Contender& contender : contenders) {
      if (!contender.program) continue;
      show(turn < 0 ? fmt::format("{}, warm-up", contender.name)
                    : fmt::format("{}, turn {} of {}", contender.name, turn + 1, turns.measured));
      const double mine = run_once(group, *contender.program, tensors);
      if (turn >= 0) contender.samples_us.push_back(tuner::largest(group, mine));
    }
  }
}

double median_us(const Contender& contender) {
  return contender.samples_us.empty() ? 0 : tuner::median(contender.samples_us);
}

}  // namespace tilewire::cli
