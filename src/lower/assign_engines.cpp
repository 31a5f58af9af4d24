// Assigns the engine of each serial lane: a copy engine, the vendor's library, or SMs.
// Listed in lower.cpp.
#include <algorithm>

#include "core/text.hpp"
#include "lower/passes.hpp"

namespace tilewire::lowering {
namespace {

bool is_library_call(const Task& task) {
  return task.kind == TaskKind::gemm_call || task.kind == TaskKind::collective_call;
}

/// Whether a copy engine can do a task: a whole copy with one destination, without conversion or addition.
bool is_whole_copy(const Task& task) {
  return task.kind == TaskKind::sync || (task.kind == TaskKind::copy && task.writes.size() == 1 &&
                                         task.epilogue.empty() && task.writes[0].mode == WriteMode::store &&
                                         task.writes[0].first_row == 0 && task.writes[0].to.rows == task.reads[0].rows);
}

/// The reason why SMs make a lane's copies, or nothing if copy engines do. NOTE: a copy engine takes about 2 us for
/// each copy, and more to start it by a doorbell, so SMs make small copies.
std::string by_sms(const Plan& plan, const Lane& lane, const Target& target) {
  if (!target.streams) return "ranks share a GPU";
  int64_t bytes = 0;
  int64_t copies = 0;
  bool local = true;
  for (const Task& task : lane.tasks) {
    if (task.kind == TaskKind::sync) continue;
    bytes += task.reads[0].rows * task.reads[0].cols * bytes_of(plan.buffers[task.reads[0].buffer].dtype);
    ++copies;
    local = local && task.reads[0].rank == lane.rank &&
            std::ranges::all_of(task.writes, [&](const Write& write) { return write.to.rank == lane.rank; });
  }
  if (!std::ranges::all_of(lane.tasks, is_whole_copy))
    return "copy engines take only whole copies with one destination";
  const int64_t least = local ? target.least_local_copy : target.least_engine_copy;
  if (bytes < copies * least)
    return fmt::format("copies have {} KiB on average, copy engines take {} KiB or more{}", bytes / copies / 1024,
                       least / 1024, local ? " within a GPU" : "");
  return {};
}

/// Whether the library takes a lane's calls. NOTE: a product of depth 0 is zeros, which the library does not write.
bool library_takes(const Lane& lane) {
  const auto is_empty = [](const Task& task) {
    return task.kind == TaskKind::gemm_call &&
           (task.reads[0].rows == 0 || task.reads[0].cols == 0 || task.writes[0].to.cols == 0);
  };
  return std::ranges::any_of(lane.tasks, is_library_call) && std::ranges::none_of(lane.tasks, is_empty);
}

}  // namespace

std::string assign_engines(Plan& plan, const Target& target) {
  int engines = 0;
  int workers = 0;
  std::string why;
  for (Lane& lane : plan.lanes) {
    if (lane.engine == Engine::library && (!target.streams || !library_takes(lane))) lane.engine = Engine::serial;
    if (lane.engine != Engine::copy) continue;
    const bool copies = std::ranges::count(lane.tasks, TaskKind::copy, &Task::kind) > 0;
    const std::string reason = by_sms(plan, lane, target);
    engines += reason.empty() && copies ? 1 : 0;
    workers += reason.empty() || !copies ? 0 : 1;
    if (reason.empty()) continue;
    if (why.empty() && copies) why = fmt::format("{} on rank {}: {}", lane.name, lane.rank, reason);
    lane.engine = Engine::serial;
  }
  if (engines + workers == 0) return "no copy lanes";
  std::string text = fmt::format("{} copy lanes by copy engines, {} by SMs", engines, workers);
  return why.empty() ? text : fmt::format("{} ({})", text, why);
}

}  // namespace tilewire::lowering
