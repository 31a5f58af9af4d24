// Gives the groups of a plan fixed numbers of rows, for the simulator.
// Called by the command line, the tuner and Python.
#include "lower/fix_groups.hpp"

#include <algorithm>
#include <numeric>

#include "core/ceil_div.hpp"
#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"

namespace tilewire {
namespace {

/// Share out the pairs of token and expert by the weight of each expert.
std::vector<int64_t> shared_rows(const Task& route, const std::vector<double>& weights) {
  const double pairs = static_cast<double>(route.reads[0].rows) * static_cast<double>(route.reads[0].cols);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> rows;
  for (const ExpertGroup& group : route.route->groups) {
    const double share = pairs * weights[group.expert] / all / static_cast<double>(group.replicas);
    rows.push_back(std::min(route.reads[0].rows, static_cast<int64_t>(share + 0.5)));
  }
  return rows;
}

class Fixer {
 public:
  Fixer(const Plan& plan, const RowsOfGroups& rows) : plan_(plan), totals_(signal_totals(plan)) {
    validate(plan);
    begins_.resize(plan.buffers.size() * plan.team.num_ranks);
    for (const Lane& lane : plan.lanes) {
      for (const Task& task : lane.tasks) {
        if (task.route) place_groups(task, rows(task));
      }
    }
  }

  Plan make() {
    fixed_ = plan_;
    for (Buffer& buffer : fixed_.buffers) fix(buffer);
    for (Lane& lane : fixed_.lanes) {
      std::vector<Task> tasks;
      for (const Task& task : lane.tasks) add(tasks, task);
      lane.tasks = std::move(tasks);
    }
    fix_waits();
    return std::move(fixed_);
  }

 private:
  /// First row of each group, then the end; by rank and buffer of extents.
  [[nodiscard]] std::vector<int64_t>& begins(int rank, int extents) {
    return begins_[rank * plan_.buffers.size() + extents];
  }

  void place_groups(const Task& route, const std::vector<int64_t>& rows) {
    const Region& extents = route.writes[0].to;
    std::vector<int64_t>& of = begins(extents.rank, extents.buffer);
    of = {0};
    for (const int64_t count : rows) of.push_back(of.back() + count);
  }

  void fix(Buffer& buffer) {
    if (!is_grouped(buffer)) return;
    buffer.rows = 0;
    buffer.shapes.resize(static_cast<size_t>(plan_.team.num_ranks), {0, buffer.cols});
    for (int rank = 0; rank < plan_.team.num_ranks; ++rank) {
      const std::vector<int64_t>& of = begins(rank, buffer.extents);
      buffer.shapes[rank].rows = of.empty() ? 0 : of.back();
      buffer.rows = std::max(buffer.rows, buffer.shapes[rank].rows);
    }
    buffer.extents = -1;
    buffer.most_rows = 0;
  }

  /// The same of the groups of a region.
  [[nodiscard]] const std::vector<int64_t>& begins_of(const Region& region) {
    const std::vector<int64_t>& of = begins(region.rank, plan_.buffers[region.buffer].extents);
    if (of.empty())
      fail(ErrorKind::unsupported, "groups with fixed rows: no task routes {}", region_name(plan_, region));
    return of;
  }

  /// Groups of a region as rows.
  [[nodiscard]] Region in_rows(Region region) {
    if (!is_grouped(plan_.buffers[region.buffer])) return region;
    const std::vector<int64_t>& of = begins_of(region);
    const int64_t end = of[region.row + region.rows];
    region.row = of[region.row];
    region.rows = end - region.row;
    return region;
  }

  void add(std::vector<Task>& tasks, const Task& task) {
    if (is_grouped_gemm(task)) return add_tiles(tasks, task);
    Task one = task;
    if (task.route) {
      // It reads what it routes and writes the places of the tokens.
      one.kind = TaskKind::copy;
      one.body = Body::gemm;
      one.route.reset();
      one.reads = {task.reads[0]};
      one.writes = {task.writes[2]};
    }
    const bool by_groups = task.kind == TaskKind::compute && is_grouped(plan_.buffers[task.writes[0].to.buffer]);
    for (Region& read : one.reads) read = in_rows(read);
    for (Write& write : one.writes) write.to = in_rows(write.to);
    if (by_groups && !task.route) return add_rows(tasks, one);
    tasks.push_back(std::move(one));
  }

  /// Rows that a pool puts into groups, as tasks of a few rows.
  void add_rows(std::vector<Task>& tasks, const Task& pool) {
    constexpr int64_t kRows = 64;
    const size_t first = tasks.size();
    for (int64_t row = 0; row < pool.reads[1].rows; row += kRows) {
      Task some = pool;
      some.reads[1].row += row;
      some.reads[1].rows = std::min(kRows, pool.reads[1].rows - row);
      some.writes[0].to.row += row;
      some.writes[0].to.rows = some.reads[1].rows;
      tasks.push_back(std::move(some));
    }
    end_family(tasks, first, pool);
  }

  /// Each task of a family posts once.
  void end_family(std::vector<Task>& tasks, size_t first, const Task& family) {
    if (tasks.size() == first) tasks.push_back({.kind = TaskKind::sync, .waits = family.waits, .posts = family.posts});
    for (const Post& post : family.posts) by_families_.push_back(post.signal);
    for (size_t i = first; i < tasks.size(); ++i) {
      for (Post& post : tasks[i].posts) post.add = 1;
    }
  }

  void add_tiles(std::vector<Task>& tasks, const Task& task) {
    const size_t first = tasks.size();
    const Region& a = task.reads[0];
    const int64_t lines = columns_of_each_b(task);
    const Write& write = task.writes[0];
    const std::vector<int64_t>& of = begins_of(a);
    for (int64_t group = a.row; group < a.row + a.rows; ++group) {
      const int64_t count = of[group + 1] - of[group];
      const int64_t down = ceil_div(count, task.gemm.tile_m);
      for (int64_t col = write.first_col; col < write.first_col + write.to.cols; col += task.gemm.tile_n) {
        const int64_t cols = std::min(task.gemm.tile_n, write.first_col + write.to.cols - col);
        for (int64_t i = 0; i < down; ++i) {
          const Range rows{of[group] + count * i / down, of[group] + count * (i + 1) / down};
          tasks.push_back(tile(task, rows, (group - a.row) * lines + col, {col, col + cols}));
          // The other half of a gated product.
          if (is_gated(task.activation))
            tasks.push_back(tile(task, rows, (group - a.row) * lines + lines / 2 + col, {col, col + cols}));
        }
      }
    }
    end_family(tasks, first, task);
  }

  /// One tile: rows, and columns of the result. `line`: its first column of all B's side by side.
  [[nodiscard]] Task tile(const Task& task, Range rows, int64_t line, Range cols) const {
    const int64_t lines = columns_of_each_b(task);
    Region a = task.reads[0];
    a.row = rows.begin;
    a.rows = rows.size();
    Region b = task.reads[1];
    if (task.gemm.b_layout == BLayout::nk) {
      b.row += line;
      b.rows = cols.size();
    } else {
      b.row += line / lines * a.cols;
      b.rows = a.cols;
      b.col = line % lines;
      b.cols = cols.size();
    }
    Task made{.kind = TaskKind::compute, .gemm = task.gemm, .waits = task.waits, .posts = task.posts};
    made.reads = {a, b};
    made.writes = {task.writes[0]};
    Write& to = made.writes[0];
    to.first_col = 0;
    to.to.row = rows.begin;
    to.to.rows = rows.size();
    to.to.col = task.writes[0].to.col + cols.begin - task.writes[0].first_col;
    to.to.cols = cols.size();
    return made;
  }

  /// Waits for all posts of a signal wait for all posts of the tiles.
  void fix_waits() {
    std::vector<bool> by_tiles(totals_.size(), false);
    for (const Signal& signal : by_families_) by_tiles[signal_id(plan_, signal)] = true;
    const std::vector<int64_t> now = signal_totals(fixed_);
    for (Lane& lane : fixed_.lanes) {
      for (Task& task : lane.tasks) {
        for (Wait& wait : task.waits) {
          const size_t id = signal_id(plan_, wait.signal);
          if (!by_tiles[id]) continue;
          if (wait.at_least != totals_[id])
            fail(ErrorKind::unsupported, "groups with fixed rows: a wait for {} of the {} posts to {}", wait.at_least,
                 totals_[id], signal_name(plan_, wait.signal));
          wait.at_least = now[id];
        }
      }
    }
  }

  const Plan& plan_;
  std::vector<int64_t> totals_;
  std::vector<std::vector<int64_t>> begins_{};
  std::vector<Signal> by_families_{};  ///< signals to which families post
  Plan fixed_{};
};

}  // namespace

bool has_groups(const Plan& plan) { return std::ranges::any_of(plan.buffers, is_grouped); }

std::vector<int64_t> uniform_rows(const Task& route) {
  return shared_rows(route, std::vector<double>(static_cast<size_t>(route.route->experts), 1.0));
}

std::vector<int64_t> zipf_rows(const Task& route) {
  std::vector<double> weights;
  for (int64_t i = 0; i < route.route->experts; ++i) weights.push_back(1.0 / static_cast<double>(i + 1));
  // A fixed shuffle: multiples of a number without a common factor.
  const auto count = static_cast<int64_t>(weights.size());
  int64_t step = count / 2 + 1;
  while (std::gcd(step, count) != 1) ++step;
  std::vector<double> shuffled(weights.size());
  for (int64_t i = 0; i < count; ++i) shuffled[i * step % count] = weights[i];
  return shared_rows(route, shuffled);
}

Plan fix_groups(const Plan& plan, const RowsOfGroups& rows) {
  return has_groups(plan) ? Fixer(plan, rows).make() : plan;
}

}  // namespace tilewire
