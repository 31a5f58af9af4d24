// Lets tiles load a rank's own rows of A from its input, and drops the copies that put them beside other ranks' rows.
// Listed in lower.cpp.
#include <algorithm>
#include <optional>
#include <vector>

#include "check/rect.hpp"
#include "core/gemm_tasks.hpp"
#include "core/regions.hpp"
#include "core/text.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"
#include "lower/tensor_cores.hpp"

namespace tilewire::lowering {
namespace {

/// A write of a copy from a rank's input to its workspace.
struct Copy {
  int lane = 0;
  int64_t task = 0;
  size_t write = 0;
  Region to{};
  Region from{};
};

/// Rows of A of which the first or the last are a copy of the rank's own input.
struct LocalRows {
  Region a{};      ///< the rows as the tiles read them
  Region first{};  ///< the first rows at their new place,
  Region rest{};   ///< and the remaining rows
};

/// Finds such rows of one rank, and the copies that no other task reads. Either all copies by the rank's pools from
/// input to workspace are unnecessary, or none is taken out.
class LocalRowsFinder {
 public:
  LocalRowsFinder(const Plan& whole, int rank) : plan_(whole), rank_(rank) {
    for (int lane = 0; lane < std::ssize(whole.lanes); ++lane) {
      if (whole.lanes[lane].rank == rank && !is_serial(whole.lanes[lane].engine)) add_copies(lane);
    }
  }

  /// Empty if one of the copies is necessary.
  [[nodiscard]] std::vector<LocalRows> find() const {
    if (copies_.empty() || is_written_twice()) return {};
    std::vector<LocalRows> found;
    for (const Lane& lane : plan_.lanes) {
      for (const Task& task : lane.tasks) {
        // NOTE: addends are always read from the copy.
        if (std::ranges::any_of(task.addends, [&](const Region& a) { return a.rank == rank_ && is_copied(a); }))
          return {};
        for (const Region& read : task.reads) {
          if (read.rank != rank_) continue;
          const bool known = std::ranges::find(found, read, &LocalRows::a) != found.end();
          if (!known && !is_copied(read)) continue;
          // NOTE: tiles of other kernels read the copy.
          if (lane.rank != rank_ || lane.kernel > 0 || !is_gemm_tile(task) || &read != task.reads.data()) return {};
          if (known) continue;
          const auto rows = rows_of(read);
          if (!rows || found.size() == kMostSplits) return {};
          found.push_back(*rows);
        }
      }
    }
    return found;
  }

  [[nodiscard]] const std::vector<Copy>& copies() const { return copies_; }

 private:
  void add_copies(int lane) {
    for (int64_t index = 0; index < std::ssize(plan_.lanes[lane].tasks); ++index) {
      const Task& task = plan_.lanes[lane].tasks[index];
      if (task.kind != TaskKind::copy || !task.epilogue.empty()) continue;
      const Region& from = task.reads[0];
      if (from.rank != rank_ || plan_.buffers[from.buffer].scope != Scope::input) continue;
      for (size_t i = 0; i < task.writes.size(); ++i) {
        const Write& write = task.writes[i];
        const Buffer& to = plan_.buffers[write.to.buffer];
        const bool workspace = to.scope == Scope::local || to.scope == Scope::symmetric;
        if (write.to.rank != rank_ || !workspace || write.mode != WriteMode::store || write.first_col > 0) continue;
        Region part = from;
        part.row += write.first_row;
        part.rows = write.to.rows;
        copies_.push_back({lane, index, i, write.to, part});
      }
    }
  }

  [[nodiscard]] bool is_copied(const Region& region) const {
    return std::ranges::any_of(copies_, [&](const Copy& copy) { return overlap(copy.to, region); });
  }

  /// Whether an element of a copy has another writer.
  [[nodiscard]] bool is_written_twice() const {
    int64_t writes = 0;
    for (const Lane& lane : plan_.lanes) {
      for (const Task& task : lane.tasks) {
        for (const Write& write : task.writes) {
          writes += std::ranges::count_if(copies_, [&](const Copy& copy) { return overlap(copy.to, write.to); });
        }
      }
    }
    return writes != std::ssize(copies_);
  }

  /// Split rows `a`, of which some are copied: the copied rows must be the first or the last ones, and the border a
  /// multiple of kRowsOfSplit.
  [[nodiscard]] std::optional<LocalRows> rows_of(const Region& a) const {
    const Copy* one = nullptr;
    int64_t first = a.row + a.rows;
    int64_t end = a.row;
    int64_t elements = 0;
    for (const Copy& copy : copies_) {
      if (!overlap(copy.to, a)) continue;
      if (one != nullptr && !is_same_move(*one, copy)) return std::nullopt;
      one = &copy;
      const checking::Rect part = checking::intersect(checking::rect_of(copy.to), checking::rect_of(a));
      first = std::min(first, part.row0);
      end = std::max(end, part.row1);
      elements += (part.row1 - part.row0) * (part.col1 - part.col0);
    }
    const bool whole = one != nullptr && elements == (end - first) * a.cols;
    const bool at_start = first == a.row;
    const bool at_end = end == a.row + a.rows;
    if (!whole || at_start == at_end || plan_.buffers[a.buffer].dtype != plan_.buffers[one->from.buffer].dtype)
      return std::nullopt;
    const int64_t border = at_start ? end : first;
    LocalRows found{a, rows_between(a, a.row, border), rows_between(a, border, a.row + a.rows)};
    Region& own = at_start ? found.first : found.rest;
    own.buffer = one->from.buffer;
    own.row += one->from.row - one->to.row;
    own.col += one->from.col - one->to.col;
    return found.first.rows % kRowsOfSplit == 0 ? std::optional(found) : std::nullopt;
  }

  [[nodiscard]] static Region rows_between(Region a, int64_t begin, int64_t end) {
    a.row = begin;
    a.rows = end - begin;
    return a;
  }

  [[nodiscard]] static bool is_same_move(const Copy& x, const Copy& y) {
    return x.from.buffer == y.from.buffer && x.from.row - x.to.row == y.from.row - y.to.row &&
           x.from.col - x.to.col == y.from.col - y.to.col;
  }

  const Plan& plan_;
  int rank_;
  std::vector<Copy> copies_;
};

/// Remove the copies, the last write of a task first. A task without writes becomes a sync with the same waits and
/// posts.
void drop(Plan& plan, const std::vector<Copy>& copies) {
  for (auto copy = copies.rbegin(); copy != copies.rend(); ++copy) {
    Task& task = plan.lanes[copy->lane].tasks[copy->task];
    task.writes.erase(task.writes.begin() + static_cast<ptrdiff_t>(copy->write));
    if (!task.writes.empty()) continue;
    task.kind = TaskKind::sync;
    task.reads.clear();
  }
}

void load_in_place(Plan& plan, int rank, const std::vector<LocalRows>& rows) {
  for (Lane& lane : plan.lanes) {
    if (lane.rank != rank) continue;
    for (Task& task : lane.tasks) {
      if (!is_gemm_tile(task) || task.reads.size() > 2) continue;
      const auto found = std::ranges::find(rows, task.reads[0], &LocalRows::a);
      if (found == rows.end()) continue;
      task.reads[0] = found->first;
      task.reads.push_back(found->rest);
    }
  }
}

}  // namespace

std::string take_local_rows(Plan& plan, const Target&) {
  if (const auto reason = slow_tiles(plan)) return "no tiles on tensor cores: " + *reason;
  const TileShape shape = tile_shape_of(first_product(plan)->gemm);
  if (!takes_splits(shape)) return fmt::format("tiles of {} x {} load from one place", shape.m, shape.n);
  const auto clusters = [](const Lane& lane) { return std::ranges::any_of(lane.tasks, in_cluster); };
  if (std::ranges::any_of(plan.lanes, clusters)) return "tiles load in clusters";
  int64_t copies = 0;
  int ranks = 0;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    const LocalRowsFinder finder(plan, rank);
    const std::vector<LocalRows> rows = finder.find();
    if (rows.empty()) continue;
    ++ranks;
    copies += std::ssize(finder.copies());
    const std::vector<Copy> spare = finder.copies();
    drop(plan, spare);
    load_in_place(plan, rank, rows);
  }
  if (ranks == 0) return "no copies that tiles alone read";
  return fmt::format("{} copies of ranks' own rows are left out on {} ranks: tiles load these where they are", copies,
                     ranks);
}

}  // namespace tilewire::lowering
