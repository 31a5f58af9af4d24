// Reads Chrome traces, measures overlap in them, and fills a page with their timelines.
// Called by the verbs report and demo.
#include "cli/report.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "cli/report_page.hpp"
#include "cli/spans.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"

namespace tilewire::cli {
namespace {

using nlohmann::json;

// "tiles 17" -> "tiles": the row of a lane's worker has a number after the lane's name.
std::string lane_of(const std::string& row) {
  const size_t last = row.find_last_not_of("0123456789");
  return last != std::string::npos && last + 1 < row.size() && row[last] == ' ' ? row.substr(0, last) : row;
}

// The place of a trace's row in the report: call, rank, lane, worker.
struct Place {
  size_t call = 0;
  int rank = 0;
  int lane = 0;
  int worker = 0;
};

// Reads one trace.
class Reader {
 public:
  Reader(std::string path, const json& trace) : path_(std::move(path)) {
    require(trace.is_object() && trace.contains("traceEvents") && trace["traceEvents"].is_array(),
            "{}: want a Chrome trace, an object with a list traceEvents", path_);
    const json& events = trace["traceEvents"];
    for (const json& event : events) name_process(event);
    for (const json& event : events) name_row(event);
    for (const json& event : events) read_span(event);
    size_t tasks = 0;
    for (size_t call = 0; call < calls_.size(); ++call) {
      for (size_t rank = 0; rank < calls_[call].ranks.size(); ++rank) {
        for (size_t lane = 0; lane < calls_[call].ranks[rank].lanes.size(); ++lane) pack(call, rank, lane);
      }
      tasks += finish(calls_[call]);
    }
    for (const json& event : events) read_arrow(event);
    require(tasks > 0, "{}: no tasks", path_);
  }

  [[nodiscard]] std::vector<ReportCall> take() { return std::move(calls_); }

 private:
  // A field of an event. Throws Error(invalid_input) if it is missing or has another type.
  template <class T>
  [[nodiscard]] T field(const json& event, const char* name) const {
    try {
      return event.at(name).get<T>();
    } catch (const json::exception&) {
      fail(ErrorKind::invalid_input, "{}: an event without a {} that fits: {:.120}", path_, name, json_text(event));
    }
  }

  // A time in us, less than a year.
  [[nodiscard]] double time(const json& event, const char* name) const {
    constexpr double kMost = 3e13;
    const auto us = field<double>(event, name);
    require(us >= -kMost && us <= kMost, "{}: {} = {} us: want less than a year", path_, name, us);
    return us;
  }

  [[nodiscard]] bool is(const json& event, const char* phase) const { return field<std::string>(event, "ph") == phase; }

  [[nodiscard]] std::string name_in(const json& event) const {
    return field<std::string>(field<json>(event, "args"), "name");
  }

  // "TITLE: rank 2", or "rank 2" in a trace of one call.
  void name_process(const json& event) {
    if (!is(event, "M") || field<std::string>(event, "name") != "process_name") return;
    const std::string name = name_in(event);
    const size_t colon = name.rfind(": ");
    const std::string title = colon == std::string::npos ? path_ : name.substr(0, colon);
    const auto is_rank = [&](const ReportRank& rank) { return name.ends_with(rank.name); };
    const bool begins =
        calls_.empty() || calls_.back().title != title || std::ranges::any_of(calls_.back().ranks, is_rank);
    if (begins) calls_.push_back({.title = title});
    processes_[field<int>(event, "pid")] = {calls_.size() - 1, static_cast<int>(calls_.back().ranks.size())};
    calls_.back().ranks.push_back({.name = colon == std::string::npos ? name : name.substr(colon + 2)});
  }

  void name_row(const json& event) {
    if (!is(event, "M") || field<std::string>(event, "name") != "thread_name") return;
    const auto process = processes_.find(field<int>(event, "pid"));
    require(process != processes_.end(), "{}: a row of process {}, which has no name", path_, field<int>(event, "pid"));
    const auto& [call, rank] = process->second;
    std::vector<ReportLane>& lanes = calls_[call].ranks[rank].lanes;
    const std::string name = lane_of(name_in(event));
    if (lanes.empty() || lanes.back().name != name) lanes.push_back({.name = name});
    rows_[{field<int>(event, "pid"), field<int>(event, "tid")}] = {call, rank, static_cast<int>(lanes.size()) - 1,
                                                                   lanes.back().workers++};
  }

  [[nodiscard]] const Place& place_of(const json& event) const {
    const std::pair key{field<int>(event, "pid"), field<int>(event, "tid")};
    const auto found = rows_.find(key);
    require(found != rows_.end(), "{}: an event in row {} of process {}, which has no name", path_, key.second,
            key.first);
    return found->second;
  }

  void read_span(const json& event) {
    if (!is(event, "X")) return;
    const Place& place = place_of(event);
    std::string task;
    if (event.contains("args")) {
      const auto args = field<json>(event, "args");
      if (args.contains("task")) task = field<std::string>(args, "task");
      task.resize(std::min(task.size(), task.find(" of lane ")));  // the row has the rest
      for (const char* list : {"waits", "writes"}) {
        if (!args.contains(list)) continue;
        const auto items = field<std::vector<std::string>>(args, list);
        if (items.empty()) continue;
        task += fmt::format("; {} {}{}", list, items.front(), items.size() > 1 ? ", ..." : "");
      }
    }
    calls_[place.call].ranks[place.rank].lanes[place.lane].spans.push_back(
        {place.worker, time(event, "ts"), time(event, "dur"), field<std::string>(event, "name"), std::move(task)});
  }

  // From when on another span may use the row. NOTE: a simulated tile ends with its stores, while the next tile already
  // runs on the same SM.
  static double free_from(const ReportSpan& span) {
    constexpr double kStores = 3;  // us, and at most a third
    return span.start_us + std::max(span.us - kStores, span.us * 2 / 3);
  }

  // Workers of a pool are alike: move each span, with the spans in it, to the first row that is free at its start.
  void pack(size_t call, size_t rank, size_t of) {
    constexpr int kMostApart = 4;  // so few workers keep their rows
    ReportLane& lane = calls_[call].ranks[rank].lanes[of];
    std::ranges::stable_sort(lane.spans, {}, &ReportSpan::start_us);
    std::vector<double> free;      // of each row: from when on
    std::map<int, Packed> outers;  // of each worker: its outer spans
    const bool packs = lane.workers > kMostApart;
    for (ReportSpan& span : lane.spans) {
      const Packed packed{.start = span.start_us, .end = span.start_us + span.us, .row = span.worker};
      const auto [outer, is_first] = outers.try_emplace(span.worker, packed);
      const int worker = span.worker;
      if (is_first || packed.end > outer->second.end) {
        outer->second = packed;
        if (packs) {
          const auto row = std::ranges::find_if(free, [&](double from) { return from <= span.start_us; });
          outer->second.row = static_cast<int>(row - free.begin());
          if (row == free.end()) free.emplace_back();
          free[outer->second.row] = free_from(span);
        }
      }
      span.worker = outer->second.row;
      packed_[{call, rank, of, worker}].push_back({packed.start, packed.end, span.worker});
    }
    if (packs) lane.workers = std::max<int>(1, static_cast<int>(free.size()));
  }

  // The row of a worker's span at some time.
  [[nodiscard]] int row_of(const Place& place, double us) const {
    const auto found = packed_.find({place.call, place.rank, place.lane, place.worker});
    if (found == packed_.end()) return place.worker;
    const auto after = std::ranges::upper_bound(found->second, us, {}, &Packed::start);
    return (after == found->second.begin() ? after : std::prev(after))->row;
  }

  // Read one end of an arrow, a post between ranks. The event of the head may come before that of the tail.
  void read_arrow(const json& event) {
    if (!is(event, "s") && !is(event, "f")) return;
    auto& [tail, head] = ends_[json_text(field<json>(event, "id"))];
    (is(event, "s") ? tail : head) = {place_of(event), time(event, "ts")};
    if (!tail || !head || tail->first.rank == head->first.rank) return;
    const Place& from = tail->first;
    const Place& to = head->first;
    calls_[from.call].arrows.push_back({{from.rank, from.lane, row_of(from, tail->second)},
                                        tail->second,
                                        {to.rank, to.lane, row_of(to, head->second)},
                                        head->second});
  }

  // Measure the times of a call. Returns the number of tasks.
  static size_t finish(ReportCall& call) {
    size_t tasks = 0;
    for (const ReportRank& rank : call.ranks) {
      Spans<double> gemm;
      Spans<double> other;
      for (const ReportLane& lane : rank.lanes) {
        for (const ReportSpan& span : lane.spans) {
          const double end = span.start_us + span.us;
          call.us = std::max(call.us, end);
          if (span.kind == "waiting") continue;
          ++tasks;
          if (span.kind == "sync") continue;
          const bool multiplies = span.kind.starts_with("gem");
          (multiplies ? gemm : other).emplace_back(span.start_us, end);
        }
      }
      const auto ranks = static_cast<double>(call.ranks.size());
      call.gemm_us += covered(gemm) / ranks;
      call.other_us += covered(other) / ranks;
      call.hidden_us += covered_by_both(gemm, other) / ranks;
    }
    return tasks;
  }

  using End = std::optional<std::pair<Place, double>>;

  // A span, and its row in the report.
  struct Packed {
    double start = 0;
    double end = 0;
    int row = 0;
  };

  std::string path_;
  std::vector<ReportCall> calls_;
  std::map<int, std::pair<size_t, int>> processes_;  // call and rank
  std::map<std::pair<int, int>, Place> rows_;
  std::map<std::string, std::pair<End, End>> ends_;
  std::map<std::tuple<size_t, size_t, size_t, int>, std::vector<Packed>> packed_;  // by call, rank, lane and worker
};

// Round to a hundredth of a us, which keeps pages small.
double rounded(double us) { return static_cast<double>(static_cast<int64_t>(us * 100 + 0.5)) / 100; }

// A list of names without repetition, and their numbers.
class Names {
 public:
  int operator()(const std::string& name) {
    const auto [found, is_new] = numbers_.emplace(name, static_cast<int>(list_.size()));
    if (is_new) list_.push_back(name);
    return found->second;
  }
  [[nodiscard]] const std::vector<std::string>& list() const { return list_; }

 private:
  std::map<std::string, int> numbers_;
  std::vector<std::string> list_;
};

json page_data(const ReportCall& call) {
  Names kinds;
  json ranks = json::array();
  for (const ReportRank& rank : call.ranks) {
    json lanes = json::array();
    for (const ReportLane& lane : rank.lanes) {
      json spans = json::array();
      for (const ReportSpan& span : lane.spans) {
        spans.push_back({span.worker, rounded(span.start_us), rounded(span.us), kinds(span.kind), span.task});
      }
      lanes.push_back({{"name", lane.name}, {"workers", lane.workers}, {"spans", std::move(spans)}});
    }
    ranks.push_back({{"name", rank.name}, {"lanes", std::move(lanes)}});
  }
  json arrows = json::array();
  for (const ReportArrow& arrow : call.arrows) {
    arrows.push_back({arrow.from, rounded(arrow.from_us), arrow.to, rounded(arrow.to_us)});
  }
  return {
      {"title", call.title},      {"us", call.us},         {"gemm", call.gemm_us},      {"other", call.other_us},
      {"hidden", call.hidden_us}, {"kinds", kinds.list()}, {"ranks", std::move(ranks)}, {"arrows", std::move(arrows)}};
}

// NOTE: "</script>" and "<!--" in a name would end the page's script, or blank it.
std::string in_script(const std::string& text) {
  std::string safe;
  for (const char letter : text) {
    if (letter == '<') {
      safe += "\\u003c";
    } else {
      safe += letter;
    }
  }
  return safe;
}

void replace(std::string& text, std::string_view mark, const std::string& with) {
  const size_t at = text.find(mark);
  require(at != std::string::npos, "the page has no place for {}", mark);
  text.replace(at, mark.size(), with);
}

}  // namespace

std::vector<ReportCall> report_calls(const std::string& path, const nlohmann::json& trace) {
  return Reader(path, trace).take();
}

std::string report_table(const std::vector<ReportCall>& calls) {
  size_t width = 4;
  for (const ReportCall& call : calls) width = std::max(width, call.title.size());
  std::string text =
      fmt::format("{:<{}} {:>11} {:>11} {:>13} {:>7}\n", "call", width, "us", "GEMM us", "exchange us", "hidden");
  for (const ReportCall& call : calls) {
    const std::string hidden = call.other_us > 0 ? fmt::format("{:.0f} %", 100 * call.hidden_us / call.other_us) : "-";
    text += fmt::format("{:<{}} {:>11.1f} {:>11.1f} {:>13.1f} {:>7}\n", call.title, width, call.us, call.gemm_us,
                        call.other_us, hidden);
  }
  return text;
}

std::string report_page(const std::string& summary, const std::vector<ReportCall>& calls) {
  std::string page(report_page_template());
  json data = json::array();
  for (const ReportCall& call : calls) data.push_back(page_data(call));
  replace(page, "/*CALLS*/[]", in_script(json_text(data)));
  replace(page, "/*SUMMARY*/\"\"", in_script(json_text(summary.empty() ? report_table(calls) : summary)));
  return page;
}

}  // namespace tilewire::cli
