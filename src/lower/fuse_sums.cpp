// Moves sums across ranks into tiles: the tile that makes the last partial of a sum completes the sum.
// Listed in lower.cpp.
#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/gemm_tasks.hpp"
#include "core/regions.hpp"
#include "core/text.hpp"
#include "lower/passes.hpp"
#include "lower/tensor_cores.hpp"
#include "lower/tile_needs.hpp"

namespace tilewire::lowering {
namespace {

/// A tile, and the sum of its result with the partials of other ranks. Lanes are indices in the plan.
struct FusedSum {
  int tile_lane = 0;
  int64_t tile = 0;
  int sum_lane = 0;
  int64_t sum = 0;
  int own = 0;                ///< index of the sum's read that the tile writes
  std::vector<Wait> waits{};  ///< waits of the sum, except for the tile's own posts
};

/// Index of a lane in the plan, and of a task in the lane.
using Place = std::pair<int, int64_t>;
using Key = std::tuple<int, int64_t, int64_t, int64_t, int64_t>;

Key key_of(const Region& region) { return {region.buffer, region.row, region.rows, region.col, region.cols}; }

struct KeyHash {
  size_t operator()(const Key& key) const {
    const auto [buffer, row, rows, col, cols] = key;
    uint64_t hash = 0;
    for (const int64_t part : {int64_t{buffer}, row, rows, col, cols})
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9E3779B97F4A7C15U;
    return hash ^ hash >> 32;
  }
};

bool is_workspace(const Buffer& buffer) { return buffer.scope == Scope::local || buffer.scope == Scope::symmetric; }

/// The posters of one of the rank's signals.
struct Posters {
  std::vector<Place> tiles{};  ///< tiles of this rank
  bool others_here = false;    ///< other tasks of this rank
  bool elsewhere = false;      ///< tasks of other ranks
  int64_t total = 0;
};

/// Finds the sums of one rank that its tiles can complete. Only the sum reads the partial of such a tile, so the tile
/// does not write it. After its mainloop the tile waits for the other ranks' partials. If that wait could be endless
/// (TileNeeds), the sum stays in its lane.
class SumFinder {
 public:
  SumFinder(const Plan& whole, int rank, TileNeeds& needs)
      : plan_(whole), rank_(rank), reads_(whole.buffers.size()), needs_(needs) {
    posters_.resize(num_signals(whole));
    for (int lane = 0; lane < std::ssize(whole.lanes); ++lane) note_lane(lane);
    for (auto& reads : reads_) std::ranges::sort(reads, {}, corner_of);
  }

  [[nodiscard]] std::vector<FusedSum> find() {
    std::vector<FusedSum> found;
    for (int lane = 0; lane < std::ssize(plan_.lanes); ++lane) {
      if (plan_.lanes[lane].rank != rank_) continue;
      for (int64_t task = 0; task < std::ssize(plan_.lanes[lane].tasks); ++task) {
        if (auto sum = complete(lane, task)) found.push_back(std::move(*sum));
      }
    }
    return found;
  }

 private:
  struct Read {
    const Region* region;
    const Task* reader;
  };
  static std::pair<int64_t, int64_t> corner_of(const Read& read) { return {read.region->row, read.region->col}; }

  [[nodiscard]] const Task& at(const Place& place) const { return plan_.lanes[place.first].tasks[place.second]; }

  void note_lane(int lane_index) {
    const Lane& lane = plan_.lanes[lane_index];
    for (int64_t index = 0; index < std::ssize(lane.tasks); ++index) {
      const Task& task = lane.tasks[index];
      const bool tile = lane.rank == rank_ && lane.kernel == 0 && is_gemm_tile(task);
      for (const auto* regions : {&task.reads, &task.addends}) {
        for (const Region& read : *regions) {
          if (read.rank != rank_ || !is_workspace(plan_.buffers[read.buffer])) continue;
          reads_[read.buffer].push_back({&read, &task});
          most_rows_ = std::max(most_rows_, read.rows);
          most_cols_ = std::max(most_cols_, read.cols);
        }
      }
      if (tile && task.writes.size() == 1 && task.writes[0].to.rank == rank_)
        tiles_[key_of(task.writes[0].to)] = {lane_index, index};
      for (const Post& post : task.posts) {
        if (post.signal.rank != rank_) continue;
        Posters& posters = posters_[post.signal.index];
        posters.total += post.add;
        if (tile) posters.tiles.emplace_back(lane_index, index);
        posters.others_here = posters.others_here || (lane.rank == rank_ && !tile);
        posters.elsewhere = posters.elsewhere || lane.rank != rank_;
      }
    }
  }

  /// Whether a tile's partial can stay in registers: it is a whole tile, stored in workspace, without epilogue or
  /// addends.
  [[nodiscard]] bool may_stay(const Task& tile) const {
    const Write& write = tile.writes[0];
    const Buffer& buffer = plan_.buffers[write.to.buffer];
    const Shape shape = result_shape(tile);
    return write.mode == WriteMode::store && write.to.rank == rank_ && write.to.rows == shape.rows &&
           write.to.cols == shape.cols && buffer.dtype == dtype_of(tile) && tile.epilogue.empty() &&
           tile.addends.empty() && depth_of(tile) > 0 && has_aligned_rows(plan_, tile.reads[0]) &&
           has_aligned_rows(plan_, tile.reads[1]) && is_workspace(buffer);
  }

  [[nodiscard]] bool read_by_others(const Region& region, const Task& sum) const {
    const auto& reads = reads_[region.buffer];
    const auto from = [&](int64_t row, int64_t col) {
      return std::ranges::lower_bound(reads, std::pair(row, col), {}, corner_of);
    };
    const auto end = from(region.row + region.rows, INT64_MIN);
    // Visit the rows of corners, and in each row the reads that can reach the region.
    for (auto row = from(region.row - most_rows_, INT64_MIN); row < end;) {
      const int64_t at = row->region->row;
      const auto other = [&](const Read& read) { return read.reader != &sum && overlap(*read.region, region); };
      if (std::any_of(from(at, region.col - most_cols_), from(at, region.col + region.cols), other)) return true;
      row = from(at + 1, INT64_MIN);
    }
    return false;
  }

  /// Whether the tile can load the other reads of a sum as addends.
  [[nodiscard]] bool addends_fit(const Task& sum, int own, const Task& tile) const {
    const Region& mine = sum.reads[own];
    for (const Region& read : sum.reads) {
      const Buffer& buffer = plan_.buffers[read.buffer];
      if (read.rank != rank_ || buffer.dtype != dtype_of(tile)) return false;
      if (!has_aligned_rows(plan_, read)) return false;
      if (&read != &mine && overlap(read, mine)) return false;
    }
    return sum.reads.size() > 1 && std::ssize(sum.reads) - 1 <= most_partials(tile_shape_of(tile.gemm));
  }

  /// The waits that remain after the tile's mainloop; nothing if they could be endless.
  [[nodiscard]] std::optional<std::vector<Wait>> waits_left(const Task& sum, int own, const Place& tile) {
    std::vector<Wait> left;
    for (const Wait& wait : sum.waits) {
      Wait now = wait;
      now.from_col = depth_of(at(tile));
      if (wait.signal.rank != rank_) return std::nullopt;
      const Posters& posters = posters_[wait.signal.index];
      const bool by_tiles_here = !posters.elsewhere && !posters.tiles.empty();
      if (!by_tiles_here && needs_.of(wait.signal, tile) >= tile.second - margin_) {
        return std::nullopt;
      }
      if (posters.tiles.empty()) {
        left.push_back(now);
        continue;
      }
      if (std::ranges::find(posters.tiles, tile) == posters.tiles.end() || posters.others_here) return std::nullopt;
      if (!posters.elsewhere) {
        // Only tiles of this rank post to it, for the partial that this tile keeps.
        const bool apart = std::ranges::count(sum.reads, sum.reads[own].buffer, &Region::buffer) == 1;
        if (!apart) return std::nullopt;
        continue;
      }
      if (posters.tiles.size() != 1 || wait.at_least != posters.total) return std::nullopt;
      for (const Post& post : at(tile).posts) now.at_least -= post.signal == wait.signal ? post.add : 0;
      if (now.at_least > 0) left.push_back(now);
    }
    return left;
  }

  /// The fused form of a task, if the task is a sum that a tile can complete.
  [[nodiscard]] std::optional<FusedSum> complete(int lane, int64_t index) {
    const Task& sum = at({lane, index});
    if (is_serial(plan_.lanes[lane].engine) || sum.kind != TaskKind::reduce) return std::nullopt;
    for (int own = 0; own < std::ssize(sum.reads); ++own) {
      const auto tile = tiles_.find(key_of(sum.reads[own]));
      if (tile == tiles_.end() || sum.reads[own].rank != rank_) continue;
      const Task& maker = at(tile->second);
      if (slow_exit(plan_, sum, dtype_of(maker))) return std::nullopt;
      if (!may_stay(maker) || !addends_fit(sum, own, maker) || read_by_others(sum.reads[own], sum)) return std::nullopt;
      auto waits = waits_left(sum, own, tile->second);
      if (!waits) return std::nullopt;
      return FusedSum{tile->second.first, tile->second.second, lane, index, own, std::move(*waits)};
    }
    return std::nullopt;
  }

  [[nodiscard]] DType dtype_of(const Task& tile) const { return plan_.buffers[tile.reads[0].buffer].dtype; }

  const Plan& plan_;
  int rank_;
  std::vector<Posters> posters_;
  std::unordered_map<Key, Place, KeyHash> tiles_;
  std::vector<std::vector<Read>> reads_;  ///< reads of the rank's workspace, sorted by their first row and column
  int64_t most_rows_ = 0;
  int64_t most_cols_ = 0;
  TileNeeds& needs_;
  /// The tiles of a pair end together, so all tiles of one pair must come before all tiles of another.
  int64_t margin_ =
      std::ranges::any_of(plan_.lanes, [](const Lane& lane) { return std::ranges::any_of(lane.tasks, in_cluster); })
          ? 2
          : 0;
};

/// Give the tile the sum's other addends, writes, epilogue, waits and posts.
void fuse(Plan& plan, const FusedSum& fused) {
  Task& tile = plan.lanes[fused.tile_lane].tasks[fused.tile];
  const Task& sum = plan.lanes[fused.sum_lane].tasks[fused.sum];
  tile.addends = sum.reads;
  tile.addends.erase(tile.addends.begin() + fused.own);
  tile.product_place = fused.own;
  tile.writes = sum.writes;
  tile.epilogue = sum.epilogue;
  tile.waits.insert(tile.waits.end(), fused.waits.begin(), fused.waits.end());
  tile.posts.insert(tile.posts.end(), sum.posts.begin(), sum.posts.end());
}

/// Remove tasks from their lanes, and empty lanes from the plan.
void remove(Plan& plan, const std::set<Place>& tasks) {
  for (int lane = 0; lane < std::ssize(plan.lanes); ++lane) {
    const auto first = tasks.lower_bound({lane, 0});
    if (first == tasks.end() || first->first != lane) continue;
    std::vector<Task> left;
    for (int64_t task = 0; task < std::ssize(plan.lanes[lane].tasks); ++task) {
      if (!tasks.contains({lane, task})) left.push_back(std::move(plan.lanes[lane].tasks[task]));
    }
    plan.lanes[lane].tasks = std::move(left);
  }
  std::erase_if(plan.lanes, [](const Lane& lane) { return lane.tasks.empty(); });
}

/// Remove the posts of tiles that only their own sums waited for.
void drop_idle_posts(Plan& plan) {
  std::vector<int> waiters(static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks);
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      for (const Wait& wait : task.waits) ++waiters[signal_id(plan, wait.signal)];
    }
  }
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (task.addends.empty()) continue;
      std::erase_if(task.posts, [&](const Post& post) {
        const auto own = std::ranges::count(task.waits, post.signal, &Wait::signal);
        return waiters[signal_id(plan, post.signal)] == own;
      });
    }
  }
}

/// The reason why no tile of the plan may complete a sum, or nothing.
std::string no_sums(const Plan& plan) {
  if (const auto slow = slow_tiles(plan)) return *slow;
  // Tensor loads cannot poll.
  if (std::ranges::any_of(plan.buffers, &Buffer::ll)) return "LL data: tensor loads cannot look whether it is there";
  return {};
}

}  // namespace

std::string fuse_sums(Plan& plan, const Target&) {
  int64_t sums = 0;
  for (const Lane& lane : plan.lanes) sums += std::ranges::count(lane.tasks, TaskKind::reduce, &Task::kind);
  if (sums == 0) return "no sums";
  if (const std::string reason = no_sums(plan); !reason.empty()) return reason;
  std::vector<FusedSum> all;
  TileNeeds needs(plan);
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    for (FusedSum& sum : SumFinder(plan, rank, needs).find()) all.push_back(std::move(sum));
  }
  std::set<Place> fused;
  for (const FusedSum& sum : all) {
    fuse(plan, sum);
    fused.insert({sum.sum_lane, sum.sum});
  }
  if (fused.empty()) return fmt::format("{} sums stay in lanes of their own", sums);
  remove(plan, fused);
  drop_idle_posts(plan);
  return fmt::format("{} of {} sums are completed by the tiles that make their last part", fused.size(), sums);
}

}  // namespace tilewire::lowering
