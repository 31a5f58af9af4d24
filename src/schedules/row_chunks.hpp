// What of a shard's rows travels together in a gather, and which of that counts in one signal.
// Used by gather.cpp.
#pragma once

#include <vector>

#include "schedules/order.hpp"

namespace tilewire {

/// Rows and columns of one owner's shard that travel together. Rows are global.
struct RowChunk {
  int owner;
  int part;  ///< number of the cut of columns
  Range rows;
  Range cols;
};

/// Which chunks count in one signal.
struct ChunkGroups {
  std::vector<int> of;     ///< of each chunk
  std::vector<int> sizes;  ///< chunks in each group
};

/// Chunks one after another that the same row tiles need count together, if `together`, as each that a tile on a GPU
/// looks at takes it a microsecond; else each is a group.
[[nodiscard]] ChunkGroups group_chunks(const std::vector<RowChunk>& chunks, const std::vector<Tile>& row_tiles,
                                       bool together);

}  // namespace tilewire
