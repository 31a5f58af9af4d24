// Finds the first column of A for which a tile needs each of its waits; loads of earlier columns do not wait.
// Listed in lower.cpp; also called by the simulator.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "core/gemm_tasks.hpp"
#include "core/regions.hpp"
#include "core/text.hpp"
#include "lower/passes.hpp"

namespace tilewire::lowering {
namespace {

class ColumnFinder {
 public:
  ColumnFinder(const Plan& whole, int rank)
      : plan_(whole),
        rank_(rank),
        writers_(whole.buffers.size()),
        totals_(signal_totals(whole)),
        posters_(num_signals(whole)) {
    for (const Lane& lane : whole.lanes) {
      for (const Task& task : lane.tasks) note(task);
    }
  }

  /// For each wait of a tile, the first column of A that needs it; nothing if all columns need all waits.
  [[nodiscard]] std::optional<std::vector<int64_t>> columns_of(const Task& tile) {
    const Region& a = tile.reads[0];
    const bool b_stands = plan_.buffers[tile.reads[1].buffer].scope == Scope::input && tile.reads[1].rank == rank_;
    if (tile.waits.empty() || a.rank != rank_ || !b_stands) {
      return std::nullopt;
    }
    // A is an input and the waits are for ready handshakes of destinations: only the result needs them.
    const bool for_owners = std::ranges::all_of(tile.waits, [](const Wait& w) { return w.purpose == Purpose::ready; });
    if (for_owners && plan_.buffers[a.buffer].scope == Scope::input)
      return std::vector<int64_t>(tile.waits.size(), std::max<int64_t>(0, a.cols - 1));
    if (tile.waits.size() < 2) return std::nullopt;
    Known& known = known_[{a.buffer, a.row, a.rows, a.col, a.cols}];
    if (known.tile == nullptr || known.tile->waits != tile.waits) known = {&tile, work_out(tile)};
    return known.columns;
  }

 private:
  struct Known {
    const Task* tile = nullptr;
    std::optional<std::vector<int64_t>> columns{};
  };

  void note(const Task& task) {
    for (const Write& write : task.writes) {
      if (write.to.rank == rank_) writers_[write.to.buffer].push_back(&task);
    }
    for (const Post& post : task.posts) {
      if (post.signal.rank == rank_) posters_[post.signal.index].push_back(&task);
    }
  }

  [[nodiscard]] std::optional<std::vector<int64_t>> work_out(const Task& tile) const {
    const Region& a = tile.reads[0];
    for (const Task* writer : writers_[a.buffer]) {
      if (first_column(*writer, a) < a.cols && !is_awaited(*writer, tile)) return std::nullopt;
    }
    std::vector<int64_t> columns;
    for (const Wait& wait : tile.waits) columns.push_back(first_column(wait, a));
    if (std::ranges::count(columns, 0) == std::ssize(columns)) return std::nullopt;
    return columns;
  }

  [[nodiscard]] bool in_full(const Wait& wait) const {
    return wait.signal.rank == rank_ && wait.at_least == totals_[rank_ * posters_.size() + wait.signal.index];
  }

  [[nodiscard]] bool is_awaited(const Task& writer, const Task& tile) const {
    return std::ranges::any_of(tile.waits, [&](const Wait& wait) {
      return in_full(wait) && std::ranges::find(writer.posts, wait.signal, &Post::signal) != writer.posts.end();
    });
  }

  /// The first column of `a` that a task writes; a.cols if it writes none.
  [[nodiscard]] int64_t first_column(const Task& writer, const Region& a) const {
    int64_t first = a.cols;
    for (const Write& write : writer.writes) {
      if (overlap(write.to, a)) first = std::min(first, std::max<int64_t>(0, write.to.col - a.col));
    }
    return first;
  }

  /// The first column of `a` that the posters of a wait write. 0 if some poster writes no part of `a`: its post may
  /// stand for other writers.
  [[nodiscard]] int64_t first_column(const Wait& wait, const Region& a) const {
    if (!in_full(wait)) return 0;
    int64_t first = a.cols;
    for (const Task* poster : posters_[wait.signal.index]) {
      const int64_t column = first_column(*poster, a);
      if (column == a.cols) return 0;
      first = std::min(first, column);
    }
    return first < a.cols ? first : 0;
  }

  const Plan& plan_;
  int rank_;
  std::vector<std::vector<const Task*>> writers_;  ///< tasks that write each of the rank's buffers
  std::vector<int64_t> totals_;
  std::vector<std::vector<const Task*>> posters_;  ///< tasks that post to each of the rank's signals
  std::map<std::tuple<int, int64_t, int64_t, int64_t, int64_t>, Known> known_;  ///< by region of A
};

}  // namespace

std::string defer_waits(Plan& plan, const Target&) {
  std::vector<std::pair<Task*, std::vector<int64_t>>> found;
  int64_t tiles = 0;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    ColumnFinder finder(plan, rank);
    for (Lane& lane : plan.lanes) {
      if (lane.rank != rank) continue;
      for (Task& task : lane.tasks) {
        if (!is_gemm_tile(task)) continue;
        ++tiles;
        if (loads_early(task)) continue;  // the schedule has chosen
        if (auto columns = finder.columns_of(task)) found.emplace_back(&task, std::move(*columns));
      }
    }
  }
  // NOTE: write only now, because tiles with equal waits share one result of the search.
  for (auto& [task, columns] : found) {
    for (size_t i = 0; i < columns.size(); ++i) task->waits[i].from_col = columns[i];
  }
  if (tiles == 0) return "no tiles";
  if (found.empty()) return "tiles need all that they wait for from their first column on, or wait for nothing";
  return fmt::format("{} of {} tiles load before all of their waits are over", found.size(), tiles);
}

}  // namespace tilewire::lowering
