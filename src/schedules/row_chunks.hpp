// What of a shard's rows travels together in a gather, and which of that counts in one signal.
// Used by gather.cpp.
#pragma once

#include <vector>

#include "schedules/tile_order.hpp"
#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Rows and columns of one owner's shard that travel together. Rows are global.
struct RowChunk {
  int owner;
  int part;  ///< number of the cut of columns
  Range rows;
  Range cols;
};

/// All shards in chunks: cut of columns after cut, and in each owner after owner.
struct CutShards {
  std::vector<Range> columns{};
  std::vector<RowChunk> chunks{};
  std::vector<int> first{};  ///< chunk of each cut of columns and owner; and the number of all
  int num_owners = 1;

  /// Those of one owner, in the columns that are cut `part`-th.
  [[nodiscard]] Range chunks_of(int owner, int part) const {
    const int index = part * num_owners + owner;
    return {first[index], first[index + 1]};
  }
};
[[nodiscard]] CutShards cut_shards(const Problem& problem, int num_ranks, const Config& config);

/// Which chunks count in one signal.
struct ChunkGroups {
  std::vector<int> of;     ///< of each chunk
  std::vector<int> sizes;  ///< chunks in each group
};

/// Chunks one after another that the same row tiles need count together, if `together`, as each that a tile on a GPU
/// looks at takes it a microsecond; else each is a group.
[[nodiscard]] ChunkGroups group_chunks(const std::vector<RowChunk>& chunks, const std::vector<Tile>& row_tiles,
                                       bool together);

/// Those of a rank's rows of `rows` that share a tile of `tile_m` rows with another rank's: its first ones and its last
/// ones, at most.
[[nodiscard]] std::vector<Range> shared_rows(int64_t rows, int num_ranks, int rank, int64_t tile_m);

/// Of how many owners the tiles are made together, so that they need the rows of all of these at the same time.
[[nodiscard]] int owners_together(const Config& config, int num_ranks);

/// Whether few workers bring tiles that are in step what all of these wait for, a cut of a shard in so many chunks:
/// then a chunk is one task, which loads it once for all peers whose tiles need it then.
[[nodiscard]] bool few_push_to_groups(const Config& config, int64_t chunks);

/// What calls of the library multiply on a rank that owns rows `mine`, by the columns that it has of each output: each
/// chunk that arrives, and all that need not travel.
[[nodiscard]] std::vector<Tile> calls_of_library(const CutShards& cut, int rank, Range mine,
                                                 const std::vector<Range>& columns);

}  // namespace tilewire
