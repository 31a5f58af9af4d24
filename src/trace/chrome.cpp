// Writes a trace as Chrome trace JSON: one process per rank, one row per worker, arrows from posts to waits.
// Called by the command line and the tests; view the file in ui.perfetto.dev.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/implied_order.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"
#include "tilewire/trace.hpp"

namespace tilewire {
namespace {

using nlohmann::json;

/// Writes trace events, one per line.
class Writer {
 public:
  Writer(std::ostream& out, const Plan& plan, const Trace& trace) : out_(out), plan_(plan), trace_(trace) {
    number_rows();
    if (!trace.events.empty()) zero_ns_ = trace.events.front().taken_ns;
    for (const TraceEvent& event : trace.events) zero_ns_ = std::min(zero_ns_, event.taken_ns);
    find_posts();
  }

  void write() {
    out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    for (int rank = 0; rank < plan_.team.num_ranks; ++rank) name_process(rank);
    for (size_t lane = 0; lane < plan_.lanes.size(); ++lane) name_rows(static_cast<int>(lane));
    for (const TraceEvent& event : trace_.events) slices(event);
    for (const TraceEvent& event : trace_.events) arrows(event);
    out_ << "\n]}\n";
  }

 private:
  /// One post of a traced task, and the counter's value after it.
  struct Posted {
    const TraceEvent* event;
    int64_t value;
  };

  [[nodiscard]] const Task& task_of(const TraceEvent& event) const { return plan_.lanes[event.lane].tasks[event.task]; }
  [[nodiscard]] double us(int64_t ns) const { return static_cast<double>(ns - zero_ns_) / 1000; }

  /// Number the workers of each lane, consecutively within a rank.
  void number_rows() {
    workers_.assign(plan_.lanes.size(), 1);
    for (const TraceEvent& event : trace_.events) {
      require(event.lane >= 0 && event.lane < std::ssize(plan_.lanes) && event.task >= 0 && event.worker >= 0 &&
                  event.task < std::ssize(plan_.lanes[event.lane].tasks),
              "the trace names worker {}, task {} of lane {}, which the plan does not have", event.worker, event.task,
              event.lane);
      workers_[event.lane] = std::max(workers_[event.lane], event.worker + 1);
    }
    std::vector<int> rows(plan_.team.num_ranks, 0);
    for (size_t lane = 0; lane < plan_.lanes.size(); ++lane) {
      int& next = rows[plan_.lanes[lane].rank];
      first_row_.push_back(next);
      next += workers_[lane];
    }
  }

  /// List the posts to each signal, sorted by the end of their tasks.
  void find_posts() {
    for (const TraceEvent& event : trace_.events) {
      for (const Post& post : task_of(event).posts) {
        posts_[{post.signal.rank, post.signal.index}].push_back({&event, post.add});
      }
    }
    for (auto& [signal, posts] : posts_) {
      std::stable_sort(posts.begin(), posts.end(),
                       [](const Posted& x, const Posted& y) { return x.event->end_ns < y.event->end_ns; });
      int64_t value = 0;
      for (Posted& posted : posts) posted.value = value += posted.value;
    }
  }

  /// The post that raised the signal to the threshold, if it belongs to this call.
  [[nodiscard]] const TraceEvent* completed_by(const Wait& wait) const {
    const auto posts = posts_.find({wait.signal.rank, wait.signal.index});
    if (wait.at_least <= 0 || posts == posts_.end()) return nullptr;
    const auto last =
        std::lower_bound(posts->second.begin(), posts->second.end(), wait.at_least,
                         [](const Posted& posted, int64_t threshold) { return posted.value < threshold; });
    return last == posts->second.end() ? nullptr : last->event;
  }

  void event(const char* phase, const TraceEvent* at, json fields) {
    fields["ph"] = phase;
    if (at != nullptr) {
      fields["pid"] = plan_.lanes[at->lane].rank;
      fields["tid"] = first_row_[at->lane] + at->worker;
    }
    out_ << (first_ ? "\n" : ",\n") << json_text(fields);
    first_ = false;
  }

  void name_process(int rank) {
    event("M", nullptr, {{"name", "process_name"}, {"pid", rank}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
    event("M", nullptr, {{"name", "process_sort_index"}, {"pid", rank}, {"args", {{"sort_index", rank}}}});
  }

  void name_rows(int lane) {
    for (int worker = 0; worker < workers_[lane]; ++worker) {
      const Lane& of = plan_.lanes[lane];
      const std::string name = workers_[lane] == 1 ? of.name : fmt::format("{} {}", of.name, worker);
      const int row = first_row_[lane] + worker;
      event("M", nullptr, {{"name", "thread_name"}, {"pid", of.rank}, {"tid", row}, {"args", {{"name", name}}}});
      event("M", nullptr,
            {{"name", "thread_sort_index"}, {"pid", of.rank}, {"tid", row}, {"args", {{"sort_index", row}}}});
    }
  }

  [[nodiscard]] json arguments(const TraceEvent& of) const {
    const Task& task = task_of(of);
    json args{{"task", task_name(plan_, of.lane, of.task)}, {"kind", to_string(task.kind)}};
    for (const Region& region : task.reads) args["reads"].push_back(region_name(plan_, region));
    for (const Region& region : task.addends) args["addends"].push_back(region_name(plan_, region));
    for (const Write& write : task.writes) args["writes"].push_back(region_name(plan_, write.to));
    for (const Post& post : task.posts) {
      args["posts"].push_back(fmt::format("{} += {}", signal_name(plan_, post.signal), post.add));
    }
    return args;
  }

  [[nodiscard]] json wishes(const TraceEvent& of) const {
    json args{{"task", task_name(plan_, of.lane, of.task)}};
    for (const Wait& wait : task_of(of).waits) {
      if (of.sum_ns > 0 && is_for_addends(task_of(of), wait)) continue;
      args["waits"].push_back(
          fmt::format("{} >= {} ({})", signal_name(plan_, wait.signal), wait.at_least, to_string(wait.purpose)));
    }
    return args;
  }

  /// Write the time of the waits, if any, then the task.
  void slices(const TraceEvent& of) {
    const Task& task = task_of(of);
    if (!task.waits.empty() && of.start_ns > of.taken_ns) {
      event("X", &of,
            {{"name", "waiting"},
             {"cat", "wait"},
             {"ts", us(of.taken_ns)},
             {"args", wishes(of)},
             {"dur", static_cast<double>(of.start_ns - of.taken_ns) / 1000}});
    }
    const std::string name = to_string(task.kind) == "compute" ? to_string(task.body) : to_string(task.kind);
    event("X", &of,
          {{"name", name},
           {"cat", "task"},
           {"ts", us(of.start_ns)},
           {"args", arguments(of)},
           {"dur", static_cast<double>(of.end_ns - of.start_ns) / 1000}});
    if (of.sum_ns == 0) return;
    event("X", &of,
          {{"name", "sum"},
           {"cat", "task"},
           {"ts", us(of.sum_ns)},
           {"args", {{"task", task_name(plan_, of.lane, of.task)}}},
           {"dur", static_cast<double>(of.end_ns - of.sum_ns) / 1000}});
  }

  /// Write one arrow per wait, to the start of the task.
  void arrows(const TraceEvent& to) {
    for (const Wait& wait : task_of(to).waits) {
      const TraceEvent* from = completed_by(wait);
      if (from == nullptr) continue;
      // NOTE: the tail of an arrow must be inside its slice and before the head. A waiter can start before the poster
      // has recorded its own end.
      const bool adds = to.sum_ns > 0 && is_for_addends(task_of(to), wait);
      const int64_t head = adds ? to.sum_ns : to.start_ns;
      const int64_t tail = std::max(from->start_ns, std::min(from->end_ns - 1, head));
      const std::string name = signal_name(plan_, wait.signal);
      ++num_arrows_;
      event("s", from, {{"name", name}, {"cat", "signal"}, {"id", num_arrows_}, {"ts", us(tail)}});
      event("f", &to,
            {{"name", name}, {"cat", "signal"}, {"id", num_arrows_}, {"bp", "e"}, {"ts", us(std::max(tail, head))}});
    }
  }

  std::ostream& out_;
  const Plan& plan_;
  const Trace& trace_;
  std::vector<int> workers_;    ///< number of rows of each lane
  std::vector<int> first_row_;  ///< first row of each lane, within its rank
  std::map<std::pair<int, int>, std::vector<Posted>> posts_;
  int64_t zero_ns_ = 0;
  int64_t num_arrows_ = 0;
  bool first_ = true;
};

}  // namespace

void write_chrome_trace(std::ostream& out, const Plan& plan, const Trace& trace) {
  // Show waits for LL data and for stages, too.
  in_full_order(plan, [&](const Plan& ordered) { Writer(out, ordered, trace).write(); });
}

}  // namespace tilewire
