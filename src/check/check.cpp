// The checker: runs its stages in order. A violation of structure or progress ends the proof.
// Called by make_op, `tilewire check` and the tests.
#include "tilewire/check.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "check/first_race.hpp"
#include "check/ll.hpp"
#include "check/proofs.hpp"
#include "check/steps.hpp"
#include "core/implied_order.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace checking {

bool Report::empty() const {
  return std::ranges::all_of(by_rule_, [](const auto& texts) { return texts.empty(); });
}

std::vector<Violation> Report::violations() const {
  std::vector<Violation> all;
  const auto take = [&](size_t rule, size_t begin, size_t end) {
    for (size_t i = begin; i < std::min(end, by_rule_[rule].size()); ++i) {
      if (std::ssize(all) < kMostViolations) all.push_back({static_cast<Rule>(rule), by_rule_[rule][i]});
    }
  };
  for (size_t rule = 0; rule < by_rule_.size(); ++rule) take(rule, 0, 1);
  for (size_t rule = 0; rule < by_rule_.size(); ++rule) take(rule, 1, kMostViolations);
  return all;
}

namespace {

bool is_callers(const Buffer& buffer) { return buffer.scope == Scope::input || buffer.scope == Scope::output; }

/// Check that the sum of all posts fits into a counter, in this call and in later ones.
void require_countable(const Plan& plan) {
  constexpr int64_t kMost = int64_t{1} << 48;
  int64_t sum = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      for (const Post& post : task.posts) {
        require(post.add <= kMost - sum, "plan: its posts add up to more than {}", kMost);
        sum += post.add;
      }
    }
  }
}

/// The first rows of blocks in one buffer of one rank, and the rows behind each.
using Blocks = std::map<int64_t, int64_t>;

/// Whether `rows` share none with the other blocks, which then have them, too.
bool takes_free_rows(Blocks& blocks, Range rows) {
  const auto [place, inserted] = blocks.emplace(rows.begin, rows.end);
  if (!inserted) return false;
  const bool meets_last = place != blocks.begin() && std::prev(place)->second > rows.begin;
  const bool meets_next = std::next(place) != blocks.end() && std::next(place)->first < rows.end;
  return !meets_last && !meets_next;
}

/// The first row of the buffer in no block, or nothing.
std::optional<int64_t> first_free_row(const Blocks& blocks, int64_t rows) {
  int64_t row = 0;
  for (const auto& [begin, end] : blocks) {
    if (begin > row) break;
    row = end;
  }
  return row < rows ? std::optional(row) : std::nullopt;
}

/// Check that every row of a caller's buffer with elements has one meaning on each rank.
void check_meanings(const Plan& plan, const std::vector<Meaning>& meanings, Report& report) {
  const int num_ranks = plan.team.num_ranks;
  std::map<std::pair<int, int>, Blocks> known;
  for (const Meaning& meaning : meanings) {
    const bool exists = meaning.buffer >= 0 && meaning.buffer < std::ssize(plan.buffers) && meaning.rank >= 0 &&
                        meaning.rank < num_ranks && is_callers(plan.buffers[meaning.buffer]);
    const char* wrong = nullptr;
    if (!exists) {
      wrong = "given, but it is no caller's buffer of this plan";
    } else {
      const Range block = rows_on(plan.buffers[meaning.buffer], meaning);
      const bool inside = block.begin >= 0 && block.end <= shape_on(plan.buffers[meaning.buffer], meaning.rank).rows;
      if (!inside) wrong = "given for rows that it does not have";
      if (inside && !takes_free_rows(known[{meaning.buffer, meaning.rank}], block)) wrong = "given twice";
    }
    if (wrong != nullptr)
      report.add(Rule::structure, "the meaning of buffer {} on rank {} is {}", meaning.buffer, meaning.rank, wrong);
  }
  for (int buffer = 0; buffer < std::ssize(plan.buffers); ++buffer) {
    if (!is_callers(plan.buffers[buffer])) continue;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Shape shape = shape_on(plan.buffers[buffer], rank);
      const auto free = first_free_row(known[{buffer, rank}], shape.rows);
      if (free && shape.cols > 0)
        report.add(Rule::structure, "no meaning is given for {} on rank {}{}", plan.buffers[buffer].name, rank,
                   *free > 0 ? fmt::format(", from row {} on", *free) : "");
    }
  }
}

/// Convert the wanted meanings to the plan's buffer numbers. Check that the plan has the wanted callers' buffers.
std::vector<Meaning> meanings_of(const Plan& plan, const Specification& wanted, Report& report) {
  std::vector<int> index;
  for (int buffer = 0; buffer < std::ssize(plan.buffers); ++buffer) {
    if (is_callers(plan.buffers[buffer])) index.push_back(buffer);
  }
  const bool compares = !wanted.buffers.empty();
  if (compares && index.size() != wanted.buffers.size())
    report.add(Rule::structure, "plan: {} buffers of the caller, {} has {}", index.size(), plan.op,
               wanted.buffers.size());
  for (size_t i = 0; compares && i < std::min(index.size(), wanted.buffers.size()); ++i) {
    Buffer have = plan.buffers[index[i]];
    have.in_arena = wanted.buffers[i].in_arena;
    have.constant = wanted.buffers[i].constant;
    if (have != wanted.buffers[i])
      report.add(Rule::structure, "plan: its buffer {} is not {}'s: have {}, want {}", have.name, plan.op,
                 to_string(have), to_string(wanted.buffers[i]));
  }
  std::vector<Meaning> meanings = wanted.meanings;
  for (Meaning& meaning : meanings)
    meaning.buffer = meaning.buffer >= 0 && meaning.buffer < std::ssize(index) ? index[meaning.buffer] : -1;
  return meanings;
}

/// The indices of the signals that a plan has for LL data.
struct DataSignals {
  int first = 0;
  int end = 0;
};

/// heard_by_ranks, or nothing if no LL data are double-buffered.
RankSets heard_of(const Tasks& tasks, const Order& order, const DataSignals& data) {
  const bool any = std::ranges::any_of(tasks.plan.buffers, [](const Buffer& buffer) { return buffer.copies > 1; });
  return any ? heard_by_ranks(tasks, order, data.first, data.end) : RankSets();
}

/// Prove progress, coverage and races. `by_signals` has the same tasks without the order of LL data: polling LL data
/// reveals nothing about other data.
void prove_execution(const Tasks& tasks, const Tasks& by_signals, const DataSignals& data,
                     const std::vector<Meaning>& meanings, Report& report) {
  const std::vector<int> sequence = check_progress(tasks, report);
  if (!report.empty()) return;
  const Order order = prove_order(by_signals, sequence, report);
  check_coverage(tasks, meanings, sequence, report);
  check_races(by_signals, order, heard_of(tasks, order, data), report);
}

/// Prove a plan in which signals express the whole order.
void prove_ordered(const Plan& plan, const Plan& by_signals, const Specification& wanted, Report& report) {
  const std::vector<Meaning> meanings = meanings_of(plan, wanted, report);
  if (!report.empty()) return;
  const Tasks tasks(plan);
  const bool same = &plan == &by_signals;
  const DataSignals data{num_signals(by_signals), num_signals(plan)};
  check_structure(tasks, wanted, report);
  check_collectives(tasks, report);
  if (report.empty()) check_meanings(plan, meanings, report);
  if (!report.empty()) return;
  const auto any_steps = [](const Lane& lane) { return std::ranges::any_of(lane.tasks, has_steps); };
  if (std::ranges::none_of(plan.lanes, any_steps))
    return same ? prove_execution(tasks, tasks, data, meanings, report)
                : prove_execution(tasks, Tasks(by_signals), data, meanings, report);
  static_cast<void>(check_progress(tasks, report));
  if (!report.empty()) return;
  const Steps steps = in_steps(plan);
  const Tasks of_steps(steps.plan, {&plan, &steps.places});
  if (same) return prove_execution(of_steps, of_steps, data, meanings, report);
  const Steps weaker = in_steps(by_signals);
  prove_execution(of_steps, Tasks(weaker.plan, {&by_signals, &weaker.places}), data, meanings, report);
}

/// Prove a plan whose indices are valid.
void prove(const Plan& plan, const Specification& wanted, Report& report) {
  if (!has_implied_order(plan)) return prove_ordered(plan, plan, wanted, report);
  if (const auto reason = refuses_ll(plan)) return report.add(Rule::structure, "LL data: {}", *reason);
  const Plan by_signals = with_stage_signals(plan);
  if (!uses_ll(plan)) return prove_ordered(by_signals, by_signals, wanted, report);
  prove_ordered(with_ll_signals(by_signals), by_signals, wanted, report);
}

}  // namespace

std::optional<std::string> first_race(const Plan& plan) {
  const Plan by_stages = with_stage_signals(plan);
  const Plan by_data = with_ll_signals(by_stages);
  const Steps steps = in_steps(by_data);
  const Steps weaker = in_steps(by_stages);
  const Tasks tasks(steps.plan, {&plan, &steps.places});
  const Tasks by_signals(weaker.plan, {&plan, &weaker.places});
  Report report;
  const std::vector<int> sequence = check_progress(tasks, report);
  if (report.empty()) {
    const Order order = prove_order(by_signals, sequence, report);
    check_races(by_signals, order, heard_of(tasks, order, {num_signals(by_stages), num_signals(by_data)}), report);
  }
  return report.empty() ? std::nullopt : std::optional(report.violations()[0].text);
}

}  // namespace checking

CheckResult check(const Plan& plan, const Specification& wanted) {
  try {
    validate(plan);
    checking::require_countable(plan);
  } catch (const Error& error) {
    return {.violations = {{Rule::structure, error.what()}}};
  }
  checking::Report report;
  checking::prove(plan, wanted, report);
  CheckResult result{.violations = report.violations(), .least_bytes = wanted.least_bytes};
  result.traffic = traffic_of(plan);
  for (const LinkTraffic& link : result.traffic) result.total_bytes += link.bytes;
  return result;
}

}  // namespace tilewire
