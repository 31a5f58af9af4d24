// Traces of calls on GPUs: the times that kernels have recorded, on the clock of all ranks.
// Called by users through Program.
#include "backends/cuda/runtime/trace.hpp"

#include <algorithm>
#include <tuple>

#include "backends/cuda/runtime/program.hpp"
#include "backends/cuda/tables/lane_tables.hpp"
#include "core/gemm_tasks.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

/// Whether a task has waits other than those for its addends.
bool waits_first(const Task& task) {
  return !std::ranges::all_of(task.waits, [&](const Wait& wait) { return is_for_addends(task, wait); });
}

/// Replace the workers, which are CTAs, by rows: each CTA gets as many rows as its tasks overlap.
void put_in_rows(std::vector<TraceEvent>& events) {
  std::ranges::sort(events, {}, [](const TraceEvent& event) {
    return std::tuple(event.lane, event.worker, event.taken_ns, event.end_ns, event.task);
  });
  std::vector<int64_t> ends;  // of the last task in each row of the lane
  size_t first_row = 0;       // of the CTA
  int lane = -1;
  int cta = -1;
  for (TraceEvent& event : events) {
    if (event.lane != lane) ends.clear();
    if (event.lane != lane || event.worker != cta) first_row = ends.size();
    lane = event.lane;
    cta = event.worker;
    size_t row = first_row;
    while (row < ends.size() && ends[row] > event.taken_ns) ++row;
    if (row == ends.size()) ends.push_back(0);
    ends[row] = event.end_ns;
    event.worker = static_cast<int>(row);
  }
}

}  // namespace

std::shared_ptr<std::byte> new_spans(size_t count, cudaStream_t stream) {
  // NOTE: a copy, not a kernel: if ranks share a device, calls of other ranks may run now.
  const std::vector<TaskSpan> zeros(count);
  const auto bytes = static_cast<int64_t>(count * sizeof(TaskSpan));
  std::shared_ptr<std::byte> memory = new_device_memory(bytes, stream);
  copy_now(memory.get(), zeros.data(), bytes, stream);
  return memory;
}

std::vector<TraceEvent> events_of(const Plan& plan, std::span<const int> lanes, std::span<const TaskName> names,
                                  std::span<const TaskSpan> spans, int64_t offset_ns) {
  const auto on_host = [&](uint64_t device_ns) { return static_cast<int64_t>(device_ns) + offset_ns; };
  std::vector<TraceEvent> events;
  for (size_t i = 0; i < spans.size(); ++i) {
    const TaskName& name = names[i];
    const TaskSpan& span = spans[i];
    // After a failed call, some tasks have not run, and some have not ended.
    if (name.again || span.end == 0 || span.end < span.start) continue;
    if (name.sum) {
      if (events.empty() || events.back().task != name.task || events.back().lane != lanes[name.lane]) continue;
      events.back().sum_taken_ns = on_host(std::min(span.taken, span.start));
      events.back().sum_ns = on_host(span.start);
      continue;
    }
    const Task& task = plan.lanes[name.lane].tasks[name.task];
    const bool sums = i + 1 < names.size() && names[i + 1].sum;
    const bool waits = (sums ? waits_first(task) : !task.waits.empty()) || polls(plan, plan.lanes[name.lane], task);
    const bool waited = waits && span.taken <= span.start;
    events.push_back({.lane = lanes[name.lane],
                      .worker = static_cast<int>(span.worker),
                      .task = name.task,
                      .taken_ns = on_host(waited ? span.taken : span.start),
                      .start_ns = on_host(span.start),
                      .end_ns = on_host(span.end)});
  }
  put_in_rows(events);
  std::ranges::sort(events, {},
                    [](const TraceEvent& event) { return std::tuple(event.lane, event.taken_ns, event.task); });
  return events;
}

ClockMatch CudaProgram::match_with_host() const {
  auto& page = *reinterpret_cast<ClockPage*>(group_.status_page() + kClockOffset);
  return match_clocks(page, group_.stream());
}

Trace CudaProgram::trace() const {
  if (traced_ == nullptr) return {};
  const CurrentDevice device(group_.driver(), group_.device());
  const BesideCapture beside;
  static_cast<void>(group_.calls().wait());
  // NOTE: if ranks share a device, calls of other ranks may run, and no other kernel may come between.
  const ClockMatch clock = group_.shares_device() ? clock_ : match_with_host();
  if (clock.error_ns < 0) fail(ErrorKind::timeout, "GPU {} did not answer clock queries: no trace", group_.device());
  std::vector<TaskSpan> spans(traced_->tables.names.size());
  copy_now(spans.data(), traced_->spans.get(), static_cast<int64_t>(spans.size() * sizeof(TaskSpan)), group_.stream());
  return {events_of(plan_, lanes_, traced_->tables.names, spans, clock.offset_ns)};
}

}  // namespace tilewire::cuda
