// Writes several calls to one Chrome trace.
// Called by bench, run and sim.
#include "cli/traces.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/options.hpp"
#include "cli/spans.hpp"
#include "core/gemm_tasks.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "schedules/parts.hpp"

namespace tilewire::cli {
namespace {

constexpr int kRanksPerCall = 100;  // process numbers of a call begin at a multiple of this

}  // namespace

double overlap_of(const Plan& plan, const Trace& trace) {
  std::vector<Spans<int64_t>> gemm(plan.team.num_ranks);
  std::vector<Spans<int64_t>> other(plan.team.num_ranks);
  for (const TraceEvent& event : trace.events) {
    const Lane& lane = plan.lanes[event.lane];
    const Task& task = lane.tasks[event.task];
    if (task.kind == TaskKind::sync) continue;
    (is_product(task) ? gemm : other)[lane.rank].emplace_back(event.start_ns, event.end_ns);
    if (event.sum_ns > 0) other[lane.rank].emplace_back(event.sum_ns, event.end_ns);
  }
  int64_t hidden = 0;
  int64_t all = 0;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    hidden += covered_by_both(gemm[rank], other[rank]);
    all += covered(other[rank]);
  }
  return all > 0 ? static_cast<double>(hidden) / static_cast<double>(all) : std::nan("");
}

std::string lanes_text(const std::string& title, const Plan& plan, const Trace& trace) {
  const double overlap = overlap_of(plan, trace);
  std::string text =
      fmt::format("{}, traced call: overlap {}\n", title, std::isnan(overlap) ? "-" : fmt::format("{:.2f}", overlap));
  text += fmt::format("  {:>4}  {:<16} {:>11} {:>11} {:>11}\n", "rank", "lane", "busy us", "waiting us", "span us");
  const auto us = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  for (const LaneSummary& lane : summarize(plan, trace)) {
    text += fmt::format("  {:>4}  {:<16} {:>11.2f} {:>11.2f} {:>11.2f}\n", plan.lanes[lane.lane].rank,
                        plan.lanes[lane.lane].name, us(lane.busy_ns), us(lane.waiting_ns), us(lane.span_ns));
  }
  return text;
}

void TraceFile::add(const std::string& title, const Plan& plan, const Trace& trace) {
  summary_ += lanes_text(title, plan, trace);
  std::ostringstream text;
  write_chrome_trace(text, plan, trace);
  nlohmann::json call = parse_json(text.str(), "the trace");
  double start = std::numeric_limits<double>::infinity();
  for (const auto& event : call["traceEvents"]) {
    if (event.contains("ts")) start = std::min(start, event["ts"].get<double>());
  }
  ++num_calls_;
  const int shift = next_process_;
  next_process_ += (plan.team.num_ranks + kRanksPerCall - 1) / kRanksPerCall * kRanksPerCall;
  for (auto& event : call["traceEvents"]) {
    event["pid"] = event["pid"].get<int>() + shift;
    if (event.contains("ts")) event["ts"] = event["ts"].get<double>() - start;
    if (event.contains("id")) event["id"] = fmt::format("{}.{}", num_calls_, json_text(event["id"]));
    if (event["name"] == "process_name") {
      event["args"]["name"] = fmt::format("{}: {}", title, event["args"]["name"].get<std::string>());
    } else if (event["name"] == "process_sort_index") {
      event["args"]["sort_index"] = event["args"]["sort_index"].get<int>() + shift;
    }
    events_.push_back(std::move(event));
  }
}

void TraceFile::write(const std::string& path) const { write_file(path, json_text(json()) + "\n"); }

nlohmann::json TraceFile::json() const { return {{"displayTimeUnit", "ns"}, {"traceEvents", events_}}; }

}  // namespace tilewire::cli
