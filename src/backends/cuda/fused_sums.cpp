// Which sums across ranks the GEMM tiles that make their last part complete themselves, instead of a lane of sums.
// Called when a program is loaded.
#include "backends/cuda/fused_sums.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "backends/cuda/lane_tables.hpp"
#include "backends/cuda/ll_protocol.hpp"
#include "core/regions.hpp"
#include "lower/tile_needs.hpp"

namespace tilewire::cuda {
namespace {

/// Lane (among the rank's own) and task.
using Place = std::pair<int, int64_t>;
using Key = std::tuple<int, int64_t, int64_t, int64_t, int64_t>;

Key key_of(const Region& region) { return {region.buffer, region.row, region.rows, region.col, region.cols}; }

/// Who posts to one of the rank's signals.
struct Posters {
  std::vector<Place> tiles{};  ///< tiles of the rank
  bool others_here = false;    ///< other tasks of the rank
  bool elsewhere = false;      ///< tasks of other ranks
  int64_t total = 0;
};

class SumFinder {
 public:
  SumFinder(const Plan& whole, int rank) : plan_(whole), rank_(rank), reads_(whole.buffers.size()), needs_(whole) {
    for (int lane = 0; lane < std::ssize(whole.lanes); ++lane) {
      if (whole.lanes[lane].rank != rank) continue;
      lanes_.push_back(&whole.lanes[lane]);
      indices_.push_back(lane);
    }
    posters_.resize(num_signals(whole));
    for (const Lane& lane : whole.lanes) note_lane(lane);
    for (auto& reads : reads_) std::ranges::sort(reads, {}, [](const Read& read) { return read.region->row; });
  }

  [[nodiscard]] std::vector<FusedSum> find() {
    std::map<Place, FusedSum> by_tile;
    for (int lane = 0; lane < std::ssize(lanes_); ++lane) {
      for (int64_t task = 0; task < std::ssize(lanes_[lane]->tasks); ++task) {
        if (auto sum = complete(lane, task)) by_tile.insert_or_assign({sum->tile_lane, sum->tile}, std::move(*sum));
      }
    }
    std::vector<FusedSum> found;
    for (auto& [tile, sum] : by_tile) found.push_back(std::move(sum));
    return found;
  }

 private:
  struct Read {
    const Region* region;
    const Task* reader;
  };

  [[nodiscard]] const Task& at(const Place& place) const { return lanes_[place.first]->tasks[place.second]; }

  void note_lane(const Lane& lane) {
    const auto mine = static_cast<int>(std::ranges::find(lanes_, &lane) - lanes_.begin());
    for (int64_t index = 0; index < std::ssize(lane.tasks); ++index) {
      const Task& task = lane.tasks[index];
      const bool tile = lane.rank == rank_ && task.kind == TaskKind::compute;
      for (const Region& read : task.reads) {
        if (read.rank != rank_) continue;
        reads_[read.buffer].push_back({&read, &task});
        most_rows_ = std::max(most_rows_, read.rows);
      }
      if (tile && task.writes.size() == 1 && task.writes[0].to.rank == rank_)
        tiles_[key_of(task.writes[0].to)] = {mine, index};
      for (const Post& post : task.posts) {
        if (post.signal.rank != rank_) continue;
        Posters& posters = posters_[post.signal.index];
        posters.total += post.add;
        if (tile) posters.tiles.emplace_back(mine, index);
        posters.others_here = posters.others_here || (lane.rank == rank_ && !tile);
        posters.elsewhere = posters.elsewhere || lane.rank != rank_;
      }
    }
  }

  /// Whether what a tile makes may stay in registers: a part of a sum, whole, in workspace.
  [[nodiscard]] bool may_stay(const Task& tile) const {
    const Write& write = tile.writes[0];
    const Buffer& buffer = plan_.buffers[write.to.buffer];
    const Shape shape = result_shape(tile);
    return write.mode == WriteMode::store && write.to.rank == rank_ && write.to.rows == shape.rows &&
           write.to.cols == shape.cols && buffer.dtype == dtype_ && tile.epilogue.empty() &&
           (buffer.scope == Scope::local || buffer.scope == Scope::symmetric);
  }

  [[nodiscard]] bool read_by_others(const Region& region, const Task& sum) const {
    const auto& reads = reads_[region.buffer];
    const auto row_of = [](const Read& read) { return read.region->row; };
    const auto first = std::ranges::lower_bound(reads, region.row - most_rows_, {}, row_of);
    const auto last = std::ranges::lower_bound(reads, region.row + region.rows, {}, row_of);
    return std::any_of(first, last,
                       [&](const Read& read) { return read.reader != &sum && overlap(*read.region, region); });
  }

  /// Whether the other reads of a sum can be loaded as parts of the tile.
  [[nodiscard]] bool parts_fit(const Task& sum, int own) const {
    const Region& mine = sum.reads[own];
    for (const Region& read : sum.reads) {
      const Buffer& buffer = plan_.buffers[read.buffer];
      if (read.rank != rank_ || buffer.dtype != dtype_) return false;
      if (shape_on(buffer, rank_).cols * bytes_of(buffer.dtype) % 16 != 0) return false;
      if (&read != &mine && overlap(read, mine)) return false;
    }
    return sum.reads.size() > 1 && std::ssize(sum.reads) - 1 <= most_partials(kind_of(plan_).shape);
  }

  /// What is left to wait for when `tile` is made, or nothing where that might be for ever.
  [[nodiscard]] std::optional<std::vector<Wait>> waits_left(const Task& sum, int own, const Place& tile) {
    std::vector<Wait> left;
    for (const Wait& wait : sum.waits) {
      Wait& now = left.emplace_back(wait);
      if (wait.signal.rank != rank_) return std::nullopt;
      const Posters& posters = posters_[wait.signal.index];
      const bool by_tiles_here = !posters.elsewhere && !posters.tiles.empty();
      if (!by_tiles_here && needs_.of(wait.signal, {indices_[tile.first], tile.second}) >= tile.second - margin_) {
        return std::nullopt;
      }
      if (posters.tiles.empty()) continue;
      if (std::ranges::find(posters.tiles, tile) == posters.tiles.end() || posters.others_here) return std::nullopt;
      if (!posters.elsewhere) {
        // Only tiles of this rank post it: they made the part that the tile brings.
        const bool apart = std::ranges::count(sum.reads, sum.reads[own].buffer, &Region::buffer) == 1;
        if (!apart) return std::nullopt;
        now.at_least = 0;
      } else if (posters.tiles.size() == 1 && wait.at_least == posters.total) {
        for (const Post& post : at(tile).posts) now.at_least -= post.signal == wait.signal ? post.add : 0;
      } else {
        return std::nullopt;
      }
    }
    return left;
  }

  /// The fused form of a task, if it is a sum that a tile can complete.
  [[nodiscard]] std::optional<FusedSum> complete(int lane, int64_t index) {
    const Task& sum = at({lane, index});
    if (is_serial(lanes_[lane]->engine) || sum.kind != TaskKind::reduce || slow_exit(plan_, sum, dtype_))
      return std::nullopt;
    for (int own = 0; own < std::ssize(sum.reads); ++own) {
      const auto tile = tiles_.find(key_of(sum.reads[own]));
      if (tile == tiles_.end() || sum.reads[own].rank != rank_) continue;
      const Task& maker = at(tile->second);
      if (!may_stay(maker) || !parts_fit(sum, own) || read_by_others(sum.reads[own], sum)) return std::nullopt;
      auto waits = waits_left(sum, own, tile->second);
      if (!waits) return std::nullopt;
      return FusedSum{tile->second.first, tile->second.second, lane, index, own, std::move(*waits)};
    }
    return std::nullopt;
  }

  const Plan& plan_;
  int rank_;
  std::vector<const Lane*> lanes_;  ///< the rank's
  std::vector<int> indices_;        ///< theirs in the plan
  std::vector<Posters> posters_;
  std::map<Key, Place> tiles_;
  std::vector<std::vector<Read>> reads_;  ///< of the rank's buffers, by first row
  int64_t most_rows_ = 0;
  TileNeeds needs_;
  /// Tiles of a pair end together: all of a pair must come before all of another.
  int64_t margin_ = in_clusters(plan_) ? 2 : 0;
  DType dtype_ = kind_of(plan_).dtype;
};

}  // namespace

std::vector<FusedSum> fused_sums(const Plan& whole, int rank) {
  if (slow_tiles(whole) || most_partials(kind_of(whole).shape) == 0) return {};
  if (uses_ll(whole)) return {};  // tensor loads cannot look whether data is there
  return SumFinder(whole, rank).find();
}

}  // namespace tilewire::cuda
