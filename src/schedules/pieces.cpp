// How the output of a reduction is cut: tiles that are made, pieces that are summed, chunks that are sent.
// Called by reduce.cpp.
#include "schedules/pieces.hpp"

#include <algorithm>

namespace tilewire {
namespace {

/// What `owner` sums of tile number `index` of `num_tiles`.
Tile share_of(const Tile& tile, int64_t index, int64_t num_tiles, const Problem& problem, int num_ranks, int owner,
              Share share) {
  Tile part = tile;
  if (share == Share::rows) {
    const Range mine = shard_of(problem.m, num_ranks, owner);
    part.rows = {std::max(tile.rows.begin, mine.begin), std::min(tile.rows.end, mine.end)};
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

}  // namespace

OutputCut cut_output(const Problem& problem, const Config& config, int num_ranks, Share share) {
  OutputCut cut;
  const int shards = share == Share::rows ? num_ranks : 1;
  const std::vector<Tile> grid = tile_grid(problem.m, problem.n, config.tile_m, config.tile_n, shards);
  const bool library = config.compute == Provider::library && !grid.empty();
  cut.tiles = library ? tile_grid(problem.m, problem.n, problem.m, problem.n) : grid;
  cut_pieces(cut, grid, problem, config, num_ranks, share);
  cut_chunks(cut, problem, config, num_ranks, share);
  if (library && config.release == Release::tile) {
    cut.tiles.clear();
    for (const Chunk& chunk : cut.chunks) cut.tiles.push_back({chunk.rows, chunk.cols});
    for (Piece& piece : cut.pieces) piece.tile = piece.chunk;
  }
  return cut;
}

}  // namespace tilewire
