// Sizes, names and validation of plans.
// Called by schedules, the checker, backends and the command line.
#include "tilewire/plan.hpp"

#include <algorithm>
#include <limits>

#include "core/bodies.hpp"
#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

constexpr int kMostSignals = 1 << 24;
constexpr int kLastStage = 15;
constexpr int kMostWorkers = 1 << 16;

/// The position of a fault in a plan, for messages.
struct Place {
  const Plan& plan;
  int lane;
  int64_t task;

  [[nodiscard]] std::string name() const { return task_name(plan, lane, task); }
};

/// NOTE: unlike `require`, the caller evaluates the arguments only if the plan is wrong; names are slow to make.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::invalid_input, format, std::forward<Args>(args)...);
}

int64_t bytes_in(const Plan& plan, Scope scope) {
  int64_t bytes = 0;
  for (const Buffer& buffer : plan.buffers)
    bytes += buffer.scope == scope && buffer.reuses < 0 ? workspace_bytes(buffer) : 0;
  return bytes;
}

void validate_extents(const Plan& plan, const Buffer& buffer) {
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();  // extents are int32
  if (!is_grouped(buffer)) {
    require(buffer.extents == -1 && buffer.most_rows == 0, "buffer {}: extents = {}, most_rows = {}: want -1 and 0",
            buffer.name, buffer.extents, buffer.most_rows);
    return;
  }
  require(buffer.extents < std::ssize(plan.buffers), "buffer {}: extents in buffer {} of {}", buffer.name,
          buffer.extents, plan.buffers.size());
  const Buffer& extents = plan.buffers[buffer.extents];
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    const Shape shape = shape_on(extents, rank);
    const int64_t groups = shape_on(buffer, rank).rows;
    require(extents.dtype == DType::int32 && shape == Shape{2, groups} && !is_grouped(extents),
            "buffer {}: its extents {} on rank {} are {} x {} of {}, want 2 x {} of int32", buffer.name, extents.name,
            rank, shape.rows, shape.cols, to_string(extents.dtype), groups);
  }
  const auto first = std::ranges::find(plan.buffers, buffer.extents, &Buffer::extents);
  require(buffer.most_rows == first->most_rows, "buffers {} and {}: most_rows = {} and {} of the same groups",
          first->name, buffer.name, first->most_rows, buffer.most_rows);
  // Of a caller's groups in the arena the checker wants reachable extents only where a peer touches them.
  require(!buffer.ll && (reachable(extents) || buffer.scope != Scope::symmetric),
          "buffer {}: groups are no LL data, and their extents {} can be addressed by the same ranks", buffer.name,
          extents.name);
  const bool callers_extents = extents.scope == Scope::input || extents.scope == Scope::output;
  require(callers_extents || buffer.scope == Scope::local || buffer.scope == Scope::symmetric,
          "buffer {}: a caller's groups, but their extents {} are workspace", buffer.name, extents.name);
  require(buffer.most_rows >= 0 && buffer.most_rows <= kMostRows, "buffer {}: most_rows = {}: want 0 to {}",
          buffer.name, buffer.most_rows, kMostRows);
}

void validate_reuse(const Plan& plan, const Buffer& buffer) {
  if (buffer.reuses == -1) return;
  require(buffer.reuses >= 0 && buffer.reuses < &buffer - plan.buffers.data(),
          "buffer {}: it reuses buffer {}: want an earlier one", buffer.name, buffer.reuses);
  const Buffer& before = plan.buffers[buffer.reuses];
  require(buffer.scope == Scope::local && before.scope == Scope::local && before.reuses == -1,
          "buffer {}: it reuses {}: want local workspace with memory of its own", buffer.name, before.name);
  require(workspace_bytes(buffer) <= workspace_bytes(before), "buffer {}: {} bytes in the {} of {}", buffer.name,
          workspace_bytes(buffer), workspace_bytes(before), before.name);
  require(std::ranges::count(plan.buffers, buffer.reuses, &Buffer::reuses) == 1, "buffer {}: others reuse {}, too",
          buffer.name, before.name);
}

void validate_buffers(const Plan& plan) {
  const int num_ranks = plan.team.num_ranks;
  constexpr int64_t kMax = int64_t{1} << 50;
  for (const Buffer& buffer : plan.buffers) {
    require(buffer.rows >= 0 && buffer.cols >= 0, "buffer {}: {} x {} is negative", buffer.name, buffer.rows,
            buffer.cols);
    require(buffer.rows <= kMax && buffer.cols <= kMax && (buffer.cols == 0 || buffer.rows <= kMax / buffer.cols),
            "buffer {}: {} x {} elements overflow", buffer.name, buffer.rows, buffer.cols);
    require(buffer.shapes.empty() || std::ssize(buffer.shapes) == num_ranks, "buffer {}: {} shapes for {} ranks",
            buffer.name, buffer.shapes.size(), num_ranks);
    require(!buffer.ll || (buffer.scope == Scope::symmetric && is_number(buffer.dtype)),
            "buffer {}: LL data is symmetric workspace of a floating type", buffer.name);
    require(buffer.copies == 1 || (buffer.copies == 2 && buffer.ll), "buffer {}: copies = {}, want 1, or 2 of LL data",
            buffer.name, buffer.copies);
    require(!buffer.shared || (buffer.scope == Scope::symmetric && !buffer.ll),
            "buffer {}: `shared` needs scope symmetric and ll = false", buffer.name);
    for (const Shape& shape : buffer.shapes) {
      require(shape.rows >= 0 && shape.rows <= buffer.rows && shape.cols >= 0 && shape.cols <= buffer.cols,
              "buffer {}: shape {} x {} of a rank is outside of {} x {}", buffer.name, shape.rows, shape.cols,
              buffer.rows, buffer.cols);
    }
    validate_extents(plan, buffer);
    validate_reuse(plan, buffer);
  }
}

void validate_region(const Place& at, const Region& region) {
  const Plan& plan = at.plan;
  if (!(region.rank >= 0 && region.rank < plan.team.num_ranks))
    refuse("{}: rank {} of {}", at.name(), region.rank, plan.team.num_ranks);
  if (!(region.buffer >= 0 && region.buffer < std::ssize(plan.buffers)))
    refuse("{}: buffer {} of {}", at.name(), region.buffer, plan.buffers.size());
  const Shape shape = shape_on(plan.buffers[region.buffer], region.rank);
  const auto inside = [](int64_t first, int64_t count, int64_t extent) {
    return first >= 0 && count >= 0 && first <= extent && count <= extent - first;
  };
  if (!(inside(region.row, region.rows, shape.rows) && inside(region.col, region.cols, shape.cols)))
    refuse("{}: {} is outside of its {} x {}", at.name(), region_name(plan, region), shape.rows, shape.cols);
}

void validate_signal(const Place& at, Signal signal, int64_t value, int signals) {
  if (!(signal.rank >= 0 && signal.rank < at.plan.team.num_ranks && signal.index >= 0 && signal.index < signals))
    refuse("{}: signal {} on rank {}, but there are {} signals on each of {} ranks", at.name(), signal.index,
           signal.rank, signals, at.plan.team.num_ranks);
  if (!(value >= 1)) refuse("{}: {} by {}: want at least 1", at.name(), signal_name(at.plan, signal), value);
}

/// The number of reads that a task of this kind may have: {least, most}.
std::pair<int64_t, int64_t> num_reads(const Task& task) {
  constexpr int64_t kMany = 1 << 20;
  switch (task.kind) {
    case TaskKind::compute:
      return {facts_of(task.body).least_reads, facts_of(task.body).most_reads};
    case TaskKind::gemm_call:
      return {2, 2};
    case TaskKind::copy:
    case TaskKind::collective_call:
      return {1, 1};
    case TaskKind::reduce:
      return {1, kMany};
    case TaskKind::fill:
    case TaskKind::sync:
      return {0, 0};
  }
  return {0, 0};
}

void validate_gemm(const Place& at, const GemmParams& gemm) {
  constexpr int64_t kMostLines = int64_t{1} << 30;
  const auto within = [&](const char* what, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most) refuse("{}: {} = {}: want {} to {}", at.name(), what, value, least, most);
  };
  within("tile_m", gemm.tile_m, 1, kMostLines);
  within("tile_n", gemm.tile_n, 1, kMostLines);
  within("cluster_m", gemm.cluster_m, 1, 16);
  within("cluster_n", gemm.cluster_n, 1, 16);
  within("cluster_split_k", gemm.cluster_split_k, 1, 8);
  if (gemm.cluster_split_k > 1 && gemm.cluster_m * gemm.cluster_n > 1)
    refuse("{}: cluster_split_k = {} with cluster_m = {}, cluster_n = {}: cluster split-K excludes shared loads",
           at.name(), gemm.cluster_split_k, gemm.cluster_m, gemm.cluster_n);
}

void validate_task(const Place& at, const Task& task, int signals) {
  if (computes(task)) validate_gemm(at, task.gemm);
  if (task.kind == TaskKind::gemm_call && !facts_of(task.body).multiplies)
    refuse("{}: a GEMM call with the body {}", at.name(), to_string(task.body));
  if (is_norm(task) && !(task.norm.eps > 0))
    refuse("{}: norm with eps = {}: want more than 0", at.name(), task.norm.eps);
  for (const Region& region : task.reads) validate_region(at, region);
  for (const Region& region : task.addends) validate_region(at, region);
  if (!task.addends.empty() && !is_gemm_tile(task)) refuse("{}: it has addends, but is no GEMM tile", at.name());
  if (task.product_place < 0 || task.product_place > std::ssize(task.addends))
    refuse("{}: product_place = {}: want 0 to {}", at.name(), task.product_place, task.addends.size());
  for (const Write& write : task.writes) {
    validate_region(at, write.to);
    if (!(write.first_row >= 0)) refuse("{}: first_row {} is negative", at.name(), write.first_row);
    if (!(write.first_col >= 0)) refuse("{}: first_col {} is negative", at.name(), write.first_col);
  }
  for (const EpilogueStep& step : task.epilogue) {
    if (step.operand) validate_region(at, *step.operand);
    const bool wants = step.kind == EpilogueKind::bias || step.kind == EpilogueKind::residual;
    if (!(wants == step.operand.has_value()))
      refuse("{}: epilogue {} {}", at.name(), to_string(step.kind), wants ? "needs an operand" : "takes no operand");
  }
  if (joins_columns(task.epilogue)) {
    if (!is_gemm_tile(task) || !task.addends.empty() || task.epilogue.size() > 1)
      refuse("{}: swiglu_pairs: want it as the only step behind a GEMM tile without addends", at.name());
    if (task.reads.size() > 1) {
      const int64_t cols = task.gemm.b_layout == BLayout::nk ? task.reads[1].rows : task.reads[1].cols;
      if (cols % 2 != 0) refuse("{}: swiglu_pairs of {} columns, want an even number", at.name(), cols);
    }
  }
  for (const Wait& wait : task.waits) {
    validate_signal(at, wait.signal, wait.at_least, signals);
    const int64_t most = is_gemm_tile(task) && !task.reads.empty() ? task.reads[0].cols : 0;
    if (!(wait.from_col >= 0 && wait.from_col <= most))
      refuse("{}: wait with from_col = {}: want 0 to {}", at.name(), wait.from_col, most);
  }
  for (const Post& post : task.posts) validate_signal(at, post.signal, post.add, signals);
  const auto [least, most] = num_reads(task);
  if (!(std::ssize(task.reads) >= least && std::ssize(task.reads) <= most))
    refuse("{}: {} reads", at.name(), task.reads.size());
  if (!(task.kind == TaskKind::sync ? task.writes.empty() : !task.writes.empty()))
    refuse("{}: {} writes", at.name(), task.writes.size());
  if (!(task.kind != TaskKind::collective_call || task.writes.size() == 1))
    refuse("{}: {} writes, want 1", at.name(), task.writes.size());
  if (const auto rule = broken_rule_of_groups(at.plan, task)) refuse("{} {}", at.name(), *rule);
  if (has_several_results(task)) return;  // each write is a result of its own
  const Shape result = result_shape(task);
  for (const Write& write : task.writes) {
    if (task.kind == TaskKind::fill || task.kind == TaskKind::collective_call) break;
    const bool fits = write.first_row <= result.rows - write.to.rows && write.first_col <= result.cols - write.to.cols;
    const bool whole_rows = write.to.cols == result.cols;
    if (!(fits && (whole_rows || takes_columns(task))))
      refuse("{}: writes rows {}..{} x columns {}..{} of a result of {} x {}", at.name(), write.first_row,
             write.first_row + write.to.rows, write.first_col, write.first_col + write.to.cols, result.rows,
             result.cols);
  }
}

}  // namespace

int num_signals(const Plan& plan) {
  int count = 0;
  for (const SignalBlock& block : plan.signals) count = std::max(count, block.first + block.count);
  return count;
}

int64_t num_tasks(const Plan& plan) {
  int64_t count = 0;
  for (const Lane& lane : plan.lanes) count += std::ssize(lane.tasks);
  return count;
}

std::string signal_name(const Plan& plan, Signal signal) {
  for (const SignalBlock& block : plan.signals) {
    const int index = signal.index - block.first;
    if (index < 0 || index >= block.count) continue;
    return block.count == 1 ? fmt::format("{} on rank {}", block.name, signal.rank)
                            : fmt::format("{}[{}] on rank {}", block.name, index, signal.rank);
  }
  return fmt::format("signal {} on rank {}", signal.index, signal.rank);
}

std::string region_name(const Plan& plan, const Region& region) {
  const bool known = region.buffer >= 0 && region.buffer < std::ssize(plan.buffers);
  return fmt::format("rank {} {} rows {}..{} cols {}..{}", region.rank,
                     known ? plan.buffers[region.buffer].name : fmt::format("buffer {}", region.buffer), region.row,
                     region.row + region.rows, region.col, region.col + region.cols);
}

std::string task_name(const Plan& plan, int lane, int64_t task) {
  const Lane& at = plan.lanes[lane];
  return fmt::format("task {} of lane {} on rank {} ({})", task, at.name, at.rank, to_string(at.tasks[task].kind));
}

Shape result_shape(const Task& task) {
  switch (task.kind) {
    case TaskKind::compute:
    case TaskKind::gemm_call:
      return facts_of(task.body).result(task);
    case TaskKind::copy:
    case TaskKind::reduce:
      return {task.reads[0].rows, task.reads[0].cols};
    case TaskKind::fill:
    case TaskKind::collective_call:
      return {task.writes[0].to.rows, task.writes[0].to.cols};
    case TaskKind::sync:
      return {};
  }
  return {};
}

int64_t copy_bytes(const Buffer& buffer) {
  const int64_t rows = is_grouped(buffer) ? buffer.most_rows : buffer.rows;
  return aligned_bytes(rows * buffer.cols * bytes_of(buffer.dtype));
}

int64_t workspace_bytes(const Buffer& buffer) { return buffer.copies * copy_bytes(buffer); }

int64_t symmetric_bytes(const Plan& plan) { return bytes_in(plan, Scope::symmetric); }

int64_t local_bytes(const Plan& plan) { return bytes_in(plan, Scope::local); }

int64_t peer_bytes(const Plan& plan, int rank) {
  int64_t bytes = 0;
  const auto add = [&](const Region& region) {
    if (region.rank != rank) bytes += region.rows * region.cols * bytes_of(plan.buffers[region.buffer].dtype);
  };
  for (const Lane& lane : plan.lanes) {
    if (lane.rank != rank) continue;
    for (const Task& task : lane.tasks) {
      for (const Region& read : task.reads) add(read);
      for (const Region& addend : task.addends) add(addend);
      for (const Write& write : task.writes) add(write.to);
    }
  }
  return bytes;
}

size_t signal_id(const Plan& plan, Signal signal) {
  return static_cast<size_t>(signal.rank) * num_signals(plan) + signal.index;
}

std::vector<int64_t> signal_totals(const Plan& plan) {
  std::vector<int64_t> totals(static_cast<size_t>(plan.team.num_ranks) * num_signals(plan));
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      for (const Post& post : task.posts) totals[signal_id(plan, post.signal)] += post.add;
    }
  }
  return totals;
}

void validate(const Team& team) {
  require(team.num_ranks >= 1, "team: {} ranks, want at least 1", team.num_ranks);
  require(team.devices.empty() || std::ssize(team.devices) == team.num_ranks, "team: {} devices for {} ranks",
          team.devices.size(), team.num_ranks);
  require(team.links.empty() || std::ssize(team.links) == int64_t{team.num_ranks} * team.num_ranks,
          "team: {} links for {} ranks, want one for each ordered pair", team.links.size(), team.num_ranks);
}

void validate(const Plan& plan) {
  validate(plan.team);
  const int num_ranks = plan.team.num_ranks;
  validate_buffers(plan);
  for (const SignalBlock& block : plan.signals) {
    require(block.first >= 0 && block.count >= 0 && block.first <= (1 << 28) && block.count <= (1 << 28),
            "signal block {}: first {}, count {}", block.name, block.first, block.count);
  }
  const int signals = num_signals(plan);
  require(signals <= kMostSignals / num_ranks, "plan: {} signals on each of {} ranks, more than {} in all", signals,
          num_ranks, kMostSignals);
  for (int lane = 0; lane < std::ssize(plan.lanes); ++lane) {
    const Lane& where = plan.lanes[lane];
    require(where.rank >= 0 && where.rank < num_ranks, "lane {} ({}): rank {} of {}", lane, where.name, where.rank,
            num_ranks);
    require(where.workers >= 0 && where.workers <= kMostWorkers, "lane {} ({}): {} workers, want 0 to {}", lane,
            where.name, where.workers, kMostWorkers);
    require(where.kernel >= 0, "lane {} ({}): kernel {}", lane, where.name, where.kernel);
    require(where.stage >= 0 && where.stage <= kLastStage, "lane {} ({}): stage {}, want 0 to {}", lane, where.name,
            where.stage, kLastStage);
    for (int64_t task = 0; task < std::ssize(where.tasks); ++task) {
      validate_task({plan, lane, task}, where.tasks[task], signals);
    }
  }
}

}  // namespace tilewire
