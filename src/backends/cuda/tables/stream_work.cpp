// Which tasks streams can execute, and the functions that enqueue them.
// Called when tables are made, and by programs.
#include "backends/cuda/tables/stream_work.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {
namespace {

/// Why the destinations are neither one nor equal parts of the columns from left to right, or nothing.
std::optional<std::string> refuses_destinations(const Task& task) {
  const Shape result = result_shape(task);
  const Region& first = task.writes[0].to;
  if (first.cols * std::ssize(task.writes) != result.cols) {
    return fmt::format("{} destinations of which the first takes {} of {} columns", task.writes.size(), first.cols,
                       result.cols);
  }
  int64_t col = 0;
  for (const Write& write : task.writes) {
    if (write.mode != WriteMode::store) return "an accumulating result";
    if (write.first_row != 0 || write.to.rows != result.rows) return "part of a result";
    if (write.first_col != col || write.to.cols != first.cols)
      return "destinations that are no equal parts of the columns, from left to right";
    if (write.to.buffer != first.buffer) return "destinations in different buffers";
    col += first.cols;
  }
  return std::nullopt;
}

std::optional<std::string> refuses_task(const Plan& plan, const Task& task) {
  const auto dtype_of = [&](const Region& region) { return plan.buffers[region.buffer].dtype; };
  if (auto reason = refuses_destinations(task)) return reason;
  const DType out = dtype_of(task.writes[0].to);
  if (out != dtype_of(task.reads[0]) && out != DType::fp32) return "output of " + to_string(out);
  const auto& steps = task.epilogue;
  if (task.writes.size() > 1 && !steps.empty()) return "an epilogue of a result with several destinations";
  // NOTE: worker CTAs make such products.
  if (task.writes.size() > 1 && depth_of(task) == 0) return "several destinations of a product of depth 0";
  const bool bias = !steps.empty() && steps[0].kind == EpilogueKind::bias;
  if (bias && dtype_of(*steps[0].operand) != out) {
    return fmt::format("a bias of {} for an output of {}", to_string(dtype_of(*steps[0].operand)), to_string(out));
  }
  const size_t rest = steps.size() - static_cast<size_t>(bias);
  if (rest == 0 || (rest == 1 && steps.back().kind == EpilogueKind::relu)) return std::nullopt;
  return "an epilogue other than bias and relu";
}

bool has(const Plan& plan, TaskKind kind) {
  return std::ranges::any_of(plan.lanes,
                             [&](const Lane& lane) { return std::ranges::count(lane.tasks, kind, &Task::kind) > 0; });
}

}  // namespace

bool calls_library(const Task& task) { return task.kind == TaskKind::gemm_call; }

bool calls_library(const Plan& plan) { return has(plan, TaskKind::gemm_call); }

bool calls_collective(const Task& task) { return task.kind == TaskKind::collective_call; }

bool calls_collective(const Plan& plan) { return has(plan, TaskKind::collective_call); }

std::optional<std::string> refuses_library(const Plan& plan) {
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (!calls_library(task)) continue;
      if (auto reason = refuses_task(plan, task)) return reason;
    }
  }
  return std::nullopt;
}

void put_in_order(std::vector<StreamWork>& works, const std::vector<std::vector<int64_t>>& places) {
  std::ranges::stable_sort(works, {}, [&](const StreamWork& work) { return places[work.lane][work.task]; });
}

int64_t most_stream_work(const Plan& plan) {
  std::vector<int64_t> works(plan.team.num_ranks, 0);
  for (const Lane& lane : plan.lanes) {
    const bool streams = lane.engine == Engine::copy || lane.engine == Engine::library;
    // A lane with a kernel of its own has two works: its begin and its end.
    works[lane.rank] += 2 + (streams ? std::ssize(lane.tasks) : 0);
  }
  return *std::ranges::max_element(works);
}

void enqueue_copy(const StreamCopy& copy, const Bases& bases, cudaStream_t stream) {
  std::byte* to = resolve(bases, copy.to);
  const std::byte* from = resolve(bases, copy.from);
  if (copy.rows == 1 || (copy.to_pitch == copy.width && copy.from_pitch == copy.width)) {
    check(cudaMemcpyAsync(to, from, copy.width * copy.rows, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    return;
  }
  check(cudaMemcpy2DAsync(to, copy.to_pitch, from, copy.from_pitch, copy.width, copy.rows, cudaMemcpyDefault, stream),
        "cudaMemcpy2DAsync");
}

void wait_for_doorbell(const Driver& driver, Doorbell* doorbell, cudaStream_t stream) {
  const auto open = reinterpret_cast<CUdeviceptr>(&doorbell->open);
  driver.check(driver.stream_wait_value_32(stream, open, 1, CU_STREAM_WAIT_VALUE_EQ), "cuStreamWaitValue32");
}

void ring_done(const Driver& driver, Doorbell* doorbell, cudaStream_t stream) {
  driver.check(driver.stream_write_value_32(stream, reinterpret_cast<CUdeviceptr>(&doorbell->done), 1, 0),
               "cuStreamWriteValue32");
}

}  // namespace tilewire::cuda
