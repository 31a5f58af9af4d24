// Chunks of a gather, groups of them, and to how many owners' tiles they go at the same time.
// Called by gather.cpp.
#include "schedules/row_chunks.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "schedules/ranges.hpp"

namespace tilewire {

CutShards cut_shards(const Problem& problem, int num_ranks, const Config& config) {
  CutShards cut{.columns = cuts({0, problem.k}, config.chunk_cols), .num_owners = num_ranks};
  if (cut.columns.empty()) cut.columns.push_back({0, problem.k});
  for (int part = 0; part < std::ssize(cut.columns); ++part) {
    for (int owner = 0; owner < num_ranks; ++owner) {
      cut.first.push_back(static_cast<int>(cut.chunks.size()));
      for (const Range rows : cuts(shard_of(problem.m, num_ranks, owner), config.chunk_rows))
        cut.chunks.push_back({owner, part, rows, cut.columns[part]});
    }
  }
  cut.first.push_back(static_cast<int>(cut.chunks.size()));
  return cut;
}

ChunkGroups group_chunks(const std::vector<RowChunk>& chunks, const std::vector<Tile>& row_tiles, bool together) {
  ChunkGroups groups;
  std::tuple<int, int64_t, int64_t> last{-1, 0, 0};
  for (const RowChunk& chunk : chunks) {
    const auto begin =
        std::ranges::upper_bound(row_tiles, chunk.rows.begin, {}, [](const Tile& t) { return t.rows.end; });
    const auto end =
        std::ranges::lower_bound(row_tiles, chunk.rows.end, {}, [](const Tile& t) { return t.rows.begin; });
    const std::tuple key{chunk.part, begin - row_tiles.begin(), end - row_tiles.begin()};
    if (std::exchange(last, key) != key || !together) groups.sizes.push_back(0);
    ++groups.sizes.back();
    groups.of.push_back(static_cast<int>(std::ssize(groups.sizes)) - 1);
  }
  return groups;
}

std::vector<Range> shared_rows(int64_t rows, int num_ranks, int rank, int64_t tile_m) {
  const Range mine = shard_of(rows, num_ranks, rank);
  std::vector<Range> slices;
  for (const Tile& tile : tile_grid(rows, 1, tile_m, 1, num_ranks)) {
    if (num_ranks == 1 || within(tile.rows, mine) || !meet(tile.rows, mine)) continue;
    slices.push_back(common(tile.rows, mine));
  }
  return slices;
}

int owners_together(const Config& config, int num_ranks) {
  const bool all = config.tile_order == TileOrder::in_step && config.group_owners == 1;
  return all ? num_ranks : config.group_owners;
}

bool few_push_to_groups(const Config& config, int64_t chunks) {
  if (config.tile_order != TileOrder::in_step || config.algorithm == Algorithm::ring) return false;
  if (config.pacing == Pacing::lockstep || config.copy_lanes > 1) return false;
  const bool pushed_by_workers = config.direction == Direction::push && config.transport != Transport::copy_engine;
  return pushed_by_workers && config.copy_workers > 0 && chunks >= config.copy_workers;
}

std::vector<Tile> calls_of_library(const CutShards& cut, int rank, Range mine, const std::vector<Range>& columns) {
  std::vector<Tile> calls;
  const auto add = [&](Range rows) {
    for (const Range& cols : columns) {
      if (cols.size() > 0) calls.push_back({rows, cols});
    }
  };
  for (const RowChunk& chunk : cut.chunks) {
    if (chunk.owner != rank) add(chunk.rows);
    if (chunk.owner == rank && chunk.rows.begin == mine.begin) add(mine);
  }
  return calls;
}

}  // namespace tilewire
