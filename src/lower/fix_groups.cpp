// Gives the groups of a plan fixed numbers of rows, for the simulator.
// Called by the command line, the tuner and Python.
#include "lower/fix_groups.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/ceil_div.hpp"
#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"

namespace tilewire {
namespace {

/// Whether group `index` of all shards is of a shared expert.
bool of_shared(const RouteParams& route, size_t index) {
  return is_shared(route, route.groups[index % route.groups.size()]);
}

/// Rows of experts that are not shared, of the rows of all groups.
int64_t chosen_rows(const RouteParams& route, const std::vector<int64_t>& rows) {
  int64_t chosen = 0;
  for (size_t i = 0; i < rows.size(); ++i) chosen += of_shared(route, i) ? 0 : rows[i];
  return chosen;
}

/// Share out the pairs of token and expert by the weight of each expert.
std::vector<int64_t> rows_by_weight(const Task& route, const std::vector<double>& weights) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto shards = static_cast<int>(route.route->shards);
  std::vector<int64_t> rows;
  for (int shard = 0; shard < shards; ++shard) {
    const Range mine = shard_of(route.reads[0].rows, shards, shard);
    const int64_t tokens = mine.size();
    const double pairs = static_cast<double>(tokens) * static_cast<double>(route.reads[0].cols);
    for (const ExpertGroup& group : route.route->groups) {
      if (is_shared(*route.route, group)) {
        const Range taken =
            shard_of(route.reads[0].rows, static_cast<int>(group.replicas), static_cast<int>(group.replica));
        rows.push_back(std::max<int64_t>(0, std::min(mine.end, taken.end) - std::max(mine.begin, taken.begin)));
        continue;
      }
      const double share = pairs * weights[group.expert] / all / static_cast<double>(group.replicas);
      rows.push_back(std::min(tokens, static_cast<int64_t>(share + 0.5)));
    }
  }
  // Of rows beyond max_rows, all experts lose the same part.
  const int64_t chosen = chosen_rows(*route.route, rows);
  if (route.route->max_rows == 0 || chosen <= route.route->max_rows) return rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!of_shared(*route.route, i)) rows[i] = rows[i] * route.route->max_rows / chosen;
  }
  return rows;
}

class Fixer {
 public:
  Fixer(const Plan& plan, const RowsOfGroups& rows) : plan_(plan), totals_(signal_totals(plan)) {
    validate(plan);
    begins_.resize(plan.buffers.size() * plan.team.num_ranks);
    placed_.resize(static_cast<size_t>(plan.team.num_ranks));
    for (const Lane& lane : plan.lanes) {
      for (const Task& task : lane.tasks) {
        if (task.route) place_groups(task, rows(task));
      }
    }
    for (const Lane& lane : plan.lanes) {
      for (const Task& task : lane.tasks) {
        if (sums_experts(task) && begins_if_known(task.reads[0]).empty()) place_given_groups(task, rows);
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
    // A token has places on the rank unless all of its experts are elsewhere.
    const auto top_k = static_cast<double>(route.reads[0].cols);
    const double pairs = static_cast<double>(route.reads[0].rows) * top_k;
    const double here = pairs > 0 ? std::min(1.0, static_cast<double>(chosen_rows(*route.route, rows)) / pairs) : 0;
    placed_[extents.rank] = 1 - std::pow(1 - here, top_k);
  }

  [[nodiscard]] const std::vector<int64_t>& begins_if_known(const Region& region) {
    return begins(region.rank, plan_.buffers[region.buffer].extents);
  }

  /// The handle of a routing is an input: as if its rank had routed all tokens to the groups of all ranks.
  void place_given_groups(const Task& sum, const RowsOfGroups& rows) {
    const int rank = sum.reads[0].rank;
    const Buffer& groups = plan_.buffers[sum.reads[0].buffer];
    const Shape lists = shape_on(plan_.buffers[sum.reads[1].buffer], rank);
    Task route{.kind = TaskKind::compute, .body = Body::route, .route = RouteParams{}};
    RouteParams& made = *route.route;
    for (int other = 0; other < plan_.team.num_ranks; ++other) {
      const int64_t count = shape_on(groups, other).rows;
      for (int64_t i = 0; other == rank && i < count; ++i) made.groups.push_back({made.experts + i});
      if (other < rank) made.first_group += count;
      made.experts += count;
    }
    route.reads = {{rank, sum.reads[1].buffer, 0, lists.rows, 0, lists.cols}};
    route.writes = {{.to = {rank, groups.extents, 0, 2, 0, shape_on(groups, rank).rows}}};
    place_groups(route, rows(route));
  }

  /// Of so many tokens, those that have places on a rank.
  [[nodiscard]] int64_t placed(int rank, int64_t tokens) const {
    return static_cast<int64_t>(placed_[rank] * static_cast<double>(tokens) + 0.5);
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
      one.writes[0].to.cols = task.reads[0].cols;  // without those of shared experts
    }
    if (computes_with(task, Body::select)) {
      // The first rows stand for those that are selected.
      one.kind = TaskKind::copy;
      one.body = Body::gemm;
      one.reads = {task.reads[0]};
      keep_rows(one, placed(task.reads[1].rank, task.reads[0].rows));
    }
    const bool by_groups = task.kind == TaskKind::compute && is_grouped(plan_.buffers[task.writes[0].to.buffer]);
    if (sums_experts(task)) take_rows_of_rank(one);
    if (sums_experts(task) && task.writes[0].mode == WriteMode::accumulate) {
      // Tokens without places add nothing, and are not sent. The others have all rows.
      const int64_t read = one.reads[1].rows * one.reads[1].cols;
      keep_rows(one, placed(task.reads[1].rank, task.reads[1].rows));
      for (size_t i = 1; i < one.reads.size(); ++i)
        one.reads[i].cols = std::min(task.reads[i].cols, ceil_div(read, one.reads[i].rows));
    }
    for (Region& read : one.reads) read = in_rows(read);
    for (Write& write : one.writes) write.to = in_rows(write.to);
    if (by_groups && !task.route) return add_rows(tasks, one);
    tasks.push_back(std::move(one));
  }

  /// The first rows of a task's lists, or of a copy, and of its results.
  static void keep_rows(Task& task, int64_t rows) {
    if (rows == 0) {
      task = {.kind = TaskKind::sync, .waits = task.waits, .posts = task.posts};
      return;
    }
    for (size_t i = task.kind == TaskKind::copy ? 0 : 1; i < task.reads.size(); ++i) task.reads[i].rows = rows;
    for (Write& write : task.writes) write.to.rows = rows;
  }

  /// Whether a task adds the rows of tokens by weight.
  [[nodiscard]] bool sums_experts(const Task& task) const {
    return computes_with(task, Body::pool) && is_grouped(plan_.buffers[task.reads[0].buffer]);
  }

  /// Of a token's places only those with a row of this rank are read. The rows of the rank are spread evenly over the
  /// tokens of the groups' shard, in whole places for all tokens of a task.
  void take_rows_of_rank(Task& sum) {
    const std::vector<int64_t>& of = begins_of(sum.reads[0]);
    const Region& groups = sum.reads[0];
    const int64_t rows = of[groups.row + groups.rows] - of[groups.row];
    Region& places = sum.reads[1];
    const int64_t shards = groups.rows == 0 ? 1 : (std::ssize(of) - 1) / groups.rows;
    const Range tokens = shard_of(shape_on(plan_.buffers[places.buffer], places.rank).rows, static_cast<int>(shards),
                                  groups.rows == 0 ? 0 : static_cast<int>(groups.row / groups.rows));
    if (places.rows == 0 || tokens.size() == 0) return;
    const auto before = [&](int64_t token) {
      return ceil_div((token - tokens.begin) * rows, tokens.size() * places.rows);
    };
    places.cols = std::min(places.cols, before(places.row + places.rows) - before(places.row));
    if (sum.reads.size() == 3) sum.reads[2].cols = places.cols;
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
  std::vector<double> placed_{};       ///< by rank: the part of the tokens that has places there
  std::vector<Signal> by_families_{};  ///< signals to which families post
  Plan fixed_{};
};

}  // namespace

bool has_groups(const Plan& plan) { return std::ranges::any_of(plan.buffers, is_grouped); }

std::vector<int64_t> expected_rows(const Task& route) {
  const std::vector<double>& load = route.route->load;
  const bool given = std::accumulate(load.begin(), load.end(), 0.0) > 0;
  return rows_by_weight(route, given ? load : std::vector<double>(static_cast<size_t>(route.route->experts), 1.0));
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
  return rows_by_weight(route, shuffled);
}

Plan fix_groups(const Plan& plan, const RowsOfGroups& rows) {
  return has_groups(plan) ? Fixer(plan, rows).make() : plan;
}

}  // namespace tilewire
