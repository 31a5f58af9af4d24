// How the output of a reduction is cut: tiles that are made, slices that are summed, chunks that are sent; and when.
// Called by reduce.cpp and mapped_plan.cpp.
#include "schedules/partition.hpp"

#include <algorithm>
#include <utility>

#include "schedules/ranges.hpp"

namespace tilewire {
namespace {

/// What `owner` sums of tile number `index` of `num_tiles`.
Tile share_of(const Tile& tile, int64_t index, int64_t num_tiles, const Problem& problem, int num_ranks, int owner,
              Ownership share) {
  Tile part = tile;
  if (share == Ownership::rows || share == Ownership::columns) {
    Range& cut = share == Ownership::rows ? part.rows : part.cols;
    const Range mine = shard_of(share == Ownership::rows ? problem.m : problem.n, num_ranks, owner);
    cut = common(cut, mine);
  } else if (share == Ownership::tiles) {
    const Range mine = shard_of(num_tiles, num_ranks, owner);
    if (index < mine.begin || index >= mine.end) part.rows = {};
  } else {
    Range& longer = tile.rows.size() >= num_ranks ? part.rows : part.cols;
    const Range slice = shard_of(longer.size(), num_ranks, owner);
    longer = {longer.begin + slice.begin, longer.begin + slice.end};
  }
  return part;
}

void cut_slices(Partition& cut, const std::vector<Tile>& grid, const Problem& problem, const Config& config,
                int num_ranks, Ownership share) {
  std::vector<int> count(num_ranks);
  for (int index = 0; index < std::ssize(grid); ++index) {
    for (int owner = 0; owner < num_ranks; ++owner) {
      const bool whole = config.algorithm == Algorithm::one_shot;
      const Tile part =
          whole ? grid[index] : share_of(grid[index], index, std::ssize(grid), problem, num_ranks, owner, share);
      if (part.rows.size() <= 0 || part.cols.size() <= 0) continue;
      const int tile = config.compute == Provider::library ? 0 : index;
      cut.slices.push_back(
          {.tile = tile, .owner = owner, .rows = part.rows, .cols = part.cols, .index = count[owner]++});
    }
  }
  cut.most_slices = *std::ranges::max_element(count);
}

/// Shares of rows: chunk_rows rows of a shard, rounded up to whole slices; of columns: as many of all rows. Else each
/// slice by itself.
void cut_chunks(Partition& cut, const Problem& problem, const Config& config, int num_ranks, Ownership share) {
  for (int i = 0; i < std::ssize(cut.slices); ++i) {
    Slice& slice = cut.slices[i];
    const Range shard = share == Ownership::columns ? Range{0, problem.m} : shard_of(problem.m, num_ranks, slice.owner);
    const int64_t step = config.chunk_rows > 0 ? config.chunk_rows : std::max<int64_t>(1, shard.size());
    const auto same = [&](const Chunk& chunk) {
      return chunk.owner == slice.owner &&
             (chunk.rows.begin - shard.begin) / step == (slice.rows.begin - shard.begin) / step;
    };
    const bool together = share == Ownership::rows || share == Ownership::columns;
    auto found = together ? std::find_if(cut.chunks.rbegin(), cut.chunks.rend(), same) : cut.chunks.rend();
    if (found == cut.chunks.rend()) {
      cut.chunks.push_back({slice.owner, slice.rows, slice.cols, i});
      found = cut.chunks.rbegin();
    }
    found->rows.end = std::max(found->rows.end, slice.rows.end);
    if (share == Ownership::rows) found->cols = {0, problem.n};
    if (share == Ownership::columns) found->cols = shard_of(problem.n, num_ranks, slice.owner);
    slice.chunk = static_cast<int>(&*found - cut.chunks.data());
  }
}

/// Every rank's tiles begin where its rows do, or its columns.
std::vector<Tile> grid_of(const Problem& problem, const Config& config, int num_ranks, Ownership share) {
  const int shards = share == Ownership::rows ? num_ranks : 1;
  if (share != Ownership::columns) return tile_grid(problem.m, problem.n, config.tile_m, config.tile_n, shards);
  std::vector<Tile> grid;
  for (int owner = 0; owner < num_ranks; ++owner) {
    const Range mine = shard_of(problem.n, num_ranks, owner);
    for (Tile tile : tile_grid(problem.m, mine.size(), config.tile_m, config.tile_n)) {
      tile.cols = {tile.cols.begin + mine.begin, tile.cols.end + mine.begin};
      grid.push_back(tile);
    }
  }
  return grid;
}

}  // namespace

Partition partition_output(const Problem& problem, const Config& config, int num_ranks, Ownership share) {
  Partition cut;
  const std::vector<Tile> grid = grid_of(problem, config, num_ranks, share);
  const bool library = config.compute == Provider::library && !grid.empty();
  cut.tiles = library ? tile_grid(problem.m, problem.n, problem.m, problem.n) : grid;
  cut_slices(cut, grid, problem, config, num_ranks, share);
  cut_chunks(cut, problem, config, num_ranks, share);
  if (library && config.release == Release::tile && share != Ownership::columns) {
    cut.tiles.clear();
    for (const Chunk& chunk : cut.chunks) cut.tiles.push_back({chunk.rows, chunk.cols});
    for (Slice& slice : cut.slices) slice.tile = slice.chunk;
  }
  return cut;
}

namespace {

/// When `rank` turns to a slice: after how many of the other owners.
int stage_of(const Slice& slice, const Config& config, int num_ranks, int rank) {
  const int distance = config.algorithm == Algorithm::ring ? rank - slice.owner : slice.owner - rank;
  return (distance - 1 + num_ranks) % num_ranks;
}

}  // namespace

std::vector<int> stages_of(const Partition& cut, const Config& config, int num_ranks, int rank, Ownership share) {
  std::vector<int> stages(cut.tiles.size(), 0);
  const bool one_shot = config.algorithm == Algorithm::one_shot;
  if (config.tile_order == TileOrder::naive || one_shot || share == Ownership::slices) return stages;
  const bool in_turn = config.reduce_mode == ReduceMode::accumulate;
  std::ranges::fill(stages, num_ranks);
  for (size_t i = 0; i < cut.slices.size(); ++i) {
    const Slice& slice = cut.slices[i];
    const bool last = i + 1 == cut.slices.size() || cut.slices[i + 1].tile != slice.tile;
    if (in_turn && !last) continue;
    stages[slice.tile] = std::min(stages[slice.tile], stage_of(slice, config, num_ranks, rank));
  }
  return stages;
}

std::vector<const Slice*> slices_in_order(const Partition& cut, const std::vector<int>& tile_order,
                                          const Config& config, int num_ranks, int rank) {
  std::vector<const Slice*> order;
  for (const Slice& slice : cut.slices) order.push_back(&slice);
  if (config.algorithm != Algorithm::ring) return order;
  std::vector<int> position(cut.tiles.size());
  for (int at = 0; const int tile : tile_order) position[tile] = at++;
  // NOTE: a tile of two owners is at another place of their ranks' walks, and moves the cuts of the others there. Then
  // stages alone are an order in which no rank waits for a later slice of another one.
  const bool as_made = config.rounds > 1 && cut.slices.size() == cut.tiles.size();
  const auto turn = [&](const Slice* slice) {
    const int stage = as_made ? 0 : stage_of(*slice, config, num_ranks, rank);
    return std::pair(stage, position[slice->tile]);
  };
  std::ranges::stable_sort(order, {}, turn);
  return order;
}

Staging staging_of(const Problem& problem, const Config& config, int num_ranks, Ownership share, const Partition& cut) {
  Staging slots{.share = share,
                .one_shot = config.algorithm == Algorithm::one_shot,
                .m = problem.m,
                .n = problem.n,
                .num_ranks = num_ranks,
                .slice_rows = std::min(config.tile_m, problem.m)};
  const bool all_rows = slots.one_shot || share == Ownership::columns;
  const bool all_cols = slots.one_shot || share == Ownership::rows;
  slots.rows = all_rows                   ? problem.m
               : share == Ownership::rows ? shard_of(problem.m, num_ranks, 0).size()
                                          : cut.most_slices * slots.slice_rows;
  slots.cols = all_cols                      ? problem.n
               : share == Ownership::columns ? shard_of(problem.n, num_ranks, 0).size()
                                             : std::min(config.tile_n, problem.n);
  return slots;
}

Tile Staging::place(int maker, const Slice& slice) const {
  int64_t row = slice.rows.begin;
  int64_t col = slice.cols.begin;
  if (share == Ownership::rows) {
    row -= shard_of(m, num_ranks, slice.owner).begin;
  } else if (share == Ownership::columns) {
    col -= shard_of(n, num_ranks, slice.owner).begin;
  } else if (!one_shot) {
    row = slice.index * slice_rows;
    col = 0;
  }
  row += maker * rows;
  return {{row, row + slice.rows.size()}, {col, col + slice.cols.size()}};
}

}  // namespace tilewire
