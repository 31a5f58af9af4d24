// How the output of a reduction is cut: tiles that are made, pieces that are summed, chunks that are sent; and when.
// Called by reduce.cpp and mapped_plan.cpp.
#include "schedules/pieces.hpp"

#include <algorithm>
#include <utility>

#include "schedules/ranges.hpp"

namespace tilewire {
namespace {

/// What `owner` sums of tile number `index` of `num_tiles`.
Tile share_of(const Tile& tile, int64_t index, int64_t num_tiles, const Problem& problem, int num_ranks, int owner,
              Share share) {
  Tile part = tile;
  if (share == Share::rows || share == Share::columns) {
    Range& cut = share == Share::rows ? part.rows : part.cols;
    const Range mine = shard_of(share == Share::rows ? problem.m : problem.n, num_ranks, owner);
    cut = common(cut, mine);
  } else if (share == Share::tiles) {
    const Range mine = shard_of(num_tiles, num_ranks, owner);
    if (index < mine.begin || index >= mine.end) part.rows = {};
  } else {
    Range& longer = tile.rows.size() >= num_ranks ? part.rows : part.cols;
    const Range slice = shard_of(longer.size(), num_ranks, owner);
    longer = {longer.begin + slice.begin, longer.begin + slice.end};
  }
  return part;
}

void cut_pieces(OutputCut& cut, const std::vector<Tile>& grid, const Problem& problem, const Config& config,
                int num_ranks, Share share) {
  std::vector<int> count(num_ranks);
  for (int index = 0; index < std::ssize(grid); ++index) {
    for (int owner = 0; owner < num_ranks; ++owner) {
      const bool whole = config.algorithm == Algorithm::one_shot;
      const Tile part =
          whole ? grid[index] : share_of(grid[index], index, std::ssize(grid), problem, num_ranks, owner, share);
      if (part.rows.size() <= 0 || part.cols.size() <= 0) continue;
      const int tile = config.compute == Provider::library ? 0 : index;
      cut.pieces.push_back(
          {.tile = tile, .owner = owner, .rows = part.rows, .cols = part.cols, .index = count[owner]++});
    }
  }
  cut.most_pieces = *std::ranges::max_element(count);
}

/// Row shares: chunk_rows rows of a shard, rounded up to whole pieces. Else each piece by itself.
void cut_chunks(OutputCut& cut, const Problem& problem, const Config& config, int num_ranks, Share share) {
  for (int i = 0; i < std::ssize(cut.pieces); ++i) {
    Piece& piece = cut.pieces[i];
    const Range shard = shard_of(problem.m, num_ranks, piece.owner);
    const int64_t step = config.chunk_rows > 0 ? config.chunk_rows : std::max<int64_t>(1, shard.size());
    const auto same = [&](const Chunk& chunk) {
      return chunk.owner == piece.owner &&
             (chunk.rows.begin - shard.begin) / step == (piece.rows.begin - shard.begin) / step;
    };
    auto found = share == Share::rows ? std::find_if(cut.chunks.rbegin(), cut.chunks.rend(), same) : cut.chunks.rend();
    if (found == cut.chunks.rend()) {
      cut.chunks.push_back({piece.owner, piece.rows, piece.cols, i});
      found = cut.chunks.rbegin();
    }
    found->rows.end = std::max(found->rows.end, piece.rows.end);
    if (share == Share::rows) found->cols = {0, problem.n};
    piece.chunk = static_cast<int>(&*found - cut.chunks.data());
  }
}

/// Every rank's tiles begin where its rows do, or its columns.
std::vector<Tile> grid_of(const Problem& problem, const Config& config, int num_ranks, Share share) {
  const int shards = share == Share::rows ? num_ranks : 1;
  if (share != Share::columns) return tile_grid(problem.m, problem.n, config.tile_m, config.tile_n, shards);
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

OutputCut cut_output(const Problem& problem, const Config& config, int num_ranks, Share share) {
  OutputCut cut;
  const std::vector<Tile> grid = grid_of(problem, config, num_ranks, share);
  const bool library = config.compute == Provider::library && !grid.empty();
  cut.tiles = library ? tile_grid(problem.m, problem.n, problem.m, problem.n) : grid;
  cut_pieces(cut, grid, problem, config, num_ranks, share);
  cut_chunks(cut, problem, config, num_ranks, share);
  if (library && config.release == Release::tile && share != Share::columns) {
    cut.tiles.clear();
    for (const Chunk& chunk : cut.chunks) cut.tiles.push_back({chunk.rows, chunk.cols});
    for (Piece& piece : cut.pieces) piece.tile = piece.chunk;
  }
  return cut;
}

namespace {

/// When `rank` turns to a piece: after how many of the other owners.
int stage_of(const Piece& piece, const Config& config, int num_ranks, int rank) {
  const int distance = config.algorithm == Algorithm::ring ? rank - piece.owner : piece.owner - rank;
  return (distance - 1 + num_ranks) % num_ranks;
}

}  // namespace

std::vector<int> stages_of(const OutputCut& cut, const Config& config, int num_ranks, int rank, Share share) {
  std::vector<int> stages(cut.tiles.size(), 0);
  const bool one_shot = config.algorithm == Algorithm::one_shot;
  if (config.order == Order::naive || one_shot || share == Share::slices) return stages;
  const bool in_turn = config.reduction == ReduceMode::accumulate;
  std::ranges::fill(stages, num_ranks);
  for (size_t i = 0; i < cut.pieces.size(); ++i) {
    const Piece& piece = cut.pieces[i];
    const bool last = i + 1 == cut.pieces.size() || cut.pieces[i + 1].tile != piece.tile;
    if (in_turn && !last) continue;
    stages[piece.tile] = std::min(stages[piece.tile], stage_of(piece, config, num_ranks, rank));
  }
  return stages;
}

std::vector<const Piece*> pieces_in_turn(const OutputCut& cut, const std::vector<int>& walk, const Config& config,
                                         int num_ranks, int rank) {
  std::vector<const Piece*> order;
  for (const Piece& piece : cut.pieces) order.push_back(&piece);
  if (config.algorithm != Algorithm::ring) return order;
  std::vector<int> position(cut.tiles.size());
  for (int at = 0; const int tile : walk) position[tile] = at++;
  // NOTE: a tile of two owners is at another place of their ranks' walks, and moves the cuts of the others there. Then
  // stages alone are an order in which no rank waits for a later piece of another one.
  const bool as_made = config.rounds > 1 && cut.pieces.size() == cut.tiles.size();
  const auto turn = [&](const Piece* piece) {
    const int stage = as_made ? 0 : stage_of(*piece, config, num_ranks, rank);
    return std::pair(stage, position[piece->tile]);
  };
  std::ranges::stable_sort(order, {}, turn);
  return order;
}

Slots slots_of(const Problem& problem, const Config& config, int num_ranks, Share share, const OutputCut& cut) {
  Slots slots{.share = share,
              .one_shot = config.algorithm == Algorithm::one_shot,
              .m = problem.m,
              .n = problem.n,
              .num_ranks = num_ranks,
              .piece_rows = std::min(config.tile_m, problem.m)};
  const bool all_rows = slots.one_shot || share == Share::columns;
  const bool all_cols = slots.one_shot || share == Share::rows;
  slots.rows = all_rows               ? problem.m
               : share == Share::rows ? shard_of(problem.m, num_ranks, 0).size()
                                      : cut.most_pieces * slots.piece_rows;
  slots.cols = all_cols                  ? problem.n
               : share == Share::columns ? shard_of(problem.n, num_ranks, 0).size()
                                         : std::min(config.tile_n, problem.n);
  return slots;
}

Tile Slots::place(int maker, const Piece& piece) const {
  int64_t row = piece.rows.begin;
  int64_t col = piece.cols.begin;
  if (share == Share::rows) {
    row -= shard_of(m, num_ranks, piece.owner).begin;
  } else if (share == Share::columns) {
    col -= shard_of(n, num_ranks, piece.owner).begin;
  } else if (!one_shot) {
    row = piece.index * piece_rows;
    col = 0;
  }
  row += maker * rows;
  return {{row, row + piece.rows.size()}, {col, col + piece.cols.size()}};
}

}  // namespace tilewire
