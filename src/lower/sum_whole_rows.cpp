// Cuts sums of LL data by rows where norms follow them, and puts each norm behind its sum.
// Listed in lower.cpp.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"

namespace tilewire::lowering {
namespace {

/// Sums by columns, and the norms of the rows that they make.
struct Band {
  std::vector<const Task*> sums{};   ///< of the same rows
  std::vector<const Task*> norms{};  ///< in the order of their rows
};

/// Whether a task sums LL data into rows of the rank's output, and only tells norms of it.
bool sums_ll(const Plan& plan, const Lane& lane, const Task& task) {
  return task.kind == TaskKind::reduce && polls(plan, lane, task) && task.waits.empty() && task.posts.size() == 1 &&
         task.posts[0].signal.rank == lane.rank && task.writes.size() == 1 && task.writes[0].first_row == 0 &&
         task.writes[0].first_col == 0 && task.writes[0].mode == WriteMode::store;
}

/// The bands of a lane of sums and a lane of norms that have nothing else, by the signal between them. Nothing where a
/// norm does not wait for the sums of its own rows alone.
std::vector<Band> bands_of(const Plan& plan, const Lane& sums, const Lane& norms) {
  std::vector<std::pair<Signal, Band>> bands;
  const auto band_of = [&](const Signal& signal) -> Band& {
    const auto found = std::ranges::find(bands, signal, &std::pair<Signal, Band>::first);
    return found == bands.end() ? bands.emplace_back(signal, Band{}).second : found->second;
  };
  for (const Task& task : sums.tasks) {
    if (!sums_ll(plan, sums, task)) return {};
    band_of(task.posts[0].signal).sums.push_back(&task);
  }
  for (const Task& task : norms.tasks) {
    if (!is_norm(task) || task.waits.size() != 1 || !task.posts.empty()) return {};
    band_of(task.waits[0].signal).norms.push_back(&task);
  }
  std::vector<Band> all;
  for (auto& [signal, band] : bands) {
    if (others_wait(plan, norms, signal)) return {};
    all.push_back(std::move(band));
  }
  return all;
}

/// Whether `next` continues `region` to the right.
bool continues(const Region& region, const Region& next) {
  return next.buffer == region.buffer && next.rank == region.rank && next.row == region.row &&
         next.rows == region.rows && next.col == region.col + region.cols;
}

/// Widen the sum by the columns of the next one. False if the two are not neighbours.
bool widen(Task& sum, const Task& next) {
  if (next.reads.size() != sum.reads.size() || next.epilogue.size() != sum.epilogue.size()) return false;
  for (size_t i = 0; i < sum.reads.size(); ++i) {
    if (!continues(sum.reads[i], next.reads[i])) return false;
    sum.reads[i].cols += next.reads[i].cols;
  }
  for (size_t i = 0; i < sum.epilogue.size(); ++i) {
    EpilogueStep& step = sum.epilogue[i];
    const EpilogueStep& other = next.epilogue[i];
    if (step.kind != other.kind || step.value != other.value || step.operand.has_value() != other.operand.has_value())
      return false;
    if (!step.operand) continue;
    if (!continues(*step.operand, *other.operand)) return false;
    step.operand->cols += other.operand->cols;
  }
  if (!continues(sum.writes[0].to, next.writes[0].to)) return false;
  sum.writes[0].to.cols += next.writes[0].to.cols;
  return true;
}

/// The band's sums as one sum of whole rows, or nothing.
std::optional<Task> whole_sum(const Plan& plan, Band& band) {
  if (band.sums.empty()) return std::nullopt;
  std::ranges::sort(band.sums, {}, [](const Task* sum) { return sum->writes[0].to.col; });
  Task whole = *band.sums[0];
  for (size_t i = 1; i < band.sums.size(); ++i) {
    if (!widen(whole, *band.sums[i])) return std::nullopt;
  }
  const Region& to = whole.writes[0].to;
  const bool all = to.col == 0 && to.cols == shape_on(plan.buffers[to.buffer], to.rank).cols;
  return all ? std::optional(std::move(whole)) : std::nullopt;
}

/// Rows of a sum, which tell `signal`.
Task rows_of(const Task& whole, int64_t first, int64_t rows, const Signal& signal) {
  Task task = whole;
  const auto cut = [&](Region& region) {
    region.row += first;
    region.rows = rows;
  };
  for (Region& read : task.reads) cut(read);
  cut(task.writes[0].to);
  for (EpilogueStep& step : task.epilogue) {
    if (step.operand && step.kind != EpilogueKind::bias) cut(*step.operand);
  }
  task.posts = {{signal}};
  return task;
}

/// The tasks of both lanes by rows: each sum, then the norm of its rows. Nothing if the sums are no whole rows.
std::optional<std::vector<Task>> by_rows(const Plan& plan, const Lane& sums, const Lane& norms, int first_signal) {
  std::vector<Task> tasks;
  for (Band& band : bands_of(plan, sums, norms)) {
    const std::optional<Task> whole = whole_sum(plan, band);
    if (!whole || band.norms.empty()) return std::nullopt;
    const Region& to = whole->writes[0].to;
    int64_t next = to.row;
    std::ranges::sort(band.norms, {}, [](const Task* norm) { return norm->reads[0].row; });
    for (const Task* each : band.norms) {
      const Region& rows = each->reads[0];
      if (rows.buffer != to.buffer || rows.rank != to.rank || rows.row != next) return std::nullopt;
      next += rows.rows;
      const Signal summed{sums.rank, first_signal + static_cast<int>(tasks.size() / 2)};
      tasks.push_back(rows_of(*whole, rows.row - to.row, rows.rows, summed));
      tasks.push_back(*each);
      tasks.back().waits = {{summed, 1}};
    }
    if (next != to.row + to.rows) return std::nullopt;
  }
  return tasks.empty() ? std::nullopt : std::optional(std::move(tasks));
}

/// The rank's lane of sums of LL data that tell the norms, or null.
Lane* sums_before(Plan& plan, const Lane& norms) {
  const auto found = std::ranges::find_if(plan.lanes, [&](const Lane& lane) {
    return &lane != &norms && lane.rank == norms.rank && !lane.tasks.empty() && sums_ll(plan, lane, lane.tasks[0]);
  });
  return found == plan.lanes.end() ? nullptr : &*found;
}

}  // namespace

std::string sum_whole_rows(Plan& plan, const Target&) {
  const auto has_norm = [](const Lane& lane) { return std::ranges::any_of(lane.tasks, is_norm); };
  if (std::ranges::none_of(plan.lanes, has_norm)) return "no norms";
  if (!uses_ll(plan)) return "no LL data";
  const int first = num_signals(plan);
  std::vector<int> used(plan.team.num_ranks, 0);  // signals of each rank
  int lanes = 0;
  for (Lane& norms : plan.lanes) {
    Lane* sums = has_norm(norms) ? sums_before(plan, norms) : nullptr;
    if (sums == nullptr) continue;
    std::optional<std::vector<Task>> tasks = by_rows(plan, *sums, norms, first + used[norms.rank]);
    if (!tasks) continue;
    sums->tasks = std::move(*tasks);
    norms.tasks.clear();
    used[norms.rank] += static_cast<int>(sums->tasks.size() / 2);
    ++lanes;
  }
  if (lanes == 0) return "sums that are no whole rows of LL data";
  const int most = *std::ranges::max_element(used);
  plan.signals.push_back({"row summed", first, most});
  return fmt::format("{} sums of whole rows on each of {} lanes, each before its norm", most, lanes);
}

}  // namespace tilewire::lowering
