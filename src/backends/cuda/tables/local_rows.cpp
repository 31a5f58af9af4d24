// Rows of a rank's own input that are copied only to lie beside other ranks' rows, for tiles.
// Called when a program is loaded.
#include "backends/cuda/tables/local_rows.hpp"

#include <algorithm>
#include <optional>

#include "backends/cuda/tables/lane_tables.hpp"
#include "check/rect.hpp"
#include "core/gemm_tasks.hpp"
#include "core/regions.hpp"

namespace tilewire::cuda {
namespace {

class LocalRowsFinder {
 public:
  LocalRowsFinder(const Plan& whole, int rank) : plan_(whole), rank_(rank) {}

  [[nodiscard]] LocalRowsOfTiles find() {
    find_copies();
    if (copies_.empty() || is_written_twice()) return {};
    LocalRowsOfTiles found;
    for (const Lane& lane : plan_.lanes) {
      for (const Task& task : lane.tasks) {
        // NOTE: what is added is read as it lies.
        if (std::ranges::any_of(task.addends, [&](const Region& a) { return a.rank == rank_ && is_copied(a); }))
          return {};
        for (const Region& read : task.reads) {
          if (read.rank != rank_) continue;
          const bool known = std::ranges::find(found.rows, read, &LocalRows::a) != found.rows.end();
          if (!known && !is_copied(read)) continue;
          // NOTE: tiles of other kernels read what lies in the copy.
          if (lane.rank != rank_ || lane.kernel > 0 || !multiplies(task) || &read != task.reads.data()) return {};
          if (known) continue;
          const auto rows = rows_of(read);
          if (!rows || found.rows.size() == kMostSplits) return {};
          found.rows.push_back(*rows);
        }
      }
    }
    for (const Copy& copy : copies_) found.spare.push_back(copy.write);
    return found;
  }

 private:
  struct Copy {
    CopyWrite write;
    Region to;
    Region from;
  };

  void find_copies() {
    int mine = -1;
    for (const Lane& lane : plan_.lanes) {
      if (lane.rank != rank_) continue;
      ++mine;
      for (int64_t task = 0; task < std::ssize(lane.tasks); ++task) {
        if (!is_serial(lane.engine)) add_copies(lane.tasks[task], {mine, task});
      }
    }
  }

  void add_copies(const Task& task, CopyWrite at) {
    if (task.kind != TaskKind::copy || !task.epilogue.empty()) return;
    const Region& from = task.reads[0];
    if (from.rank != rank_ || plan_.buffers[from.buffer].scope != Scope::input) return;
    for (; at.write < task.writes.size(); ++at.write) {
      const Write& write = task.writes[at.write];
      const Buffer& to = plan_.buffers[write.to.buffer];
      const bool workspace = to.scope == Scope::local || to.scope == Scope::symmetric;
      if (write.to.rank != rank_ || !workspace || write.mode != WriteMode::store || write.first_col > 0) continue;
      Region part = from;
      part.row += write.first_row;
      part.rows = write.to.rows;
      copies_.push_back({at, write.to, part});
    }
  }

  [[nodiscard]] bool multiplies(const Task& task) const { return is_gemm_tile(task); }

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

  /// Which rows of `a`, some of which are copied, are.
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

}  // namespace

LocalRowsOfTiles local_rows(const Plan& whole, int rank) {
  const bool shares = in_clusters(whole);
  if (slow_tiles(whole) || shares || !takes_splits(kind_of(whole).shape)) return {};
  return LocalRowsFinder(whole, rank).find();
}

}  // namespace tilewire::cuda
