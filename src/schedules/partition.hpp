// How the output of a reduction is cut: tiles that are made, slices that are summed, chunks that are sent; and when.
// Called by reduce.cpp and mapped_plan.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/tile_order.hpp"
#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Who sums which part of the output.
enum class Ownership {
  rows,     ///< the owner of the rows (reduce-scatter)
  columns,  ///< the owner of the columns: 1/n of them each
  tiles,    ///< a run of whole tiles each
  slices,   ///< 1/n of every tile each
};

/// Part of one tile that one rank sums. Rows and columns are global.
struct Slice {
  int tile = 0;  ///< index of the tile that contains it
  int owner = 0;
  Range rows;
  Range cols;
  int index = 0;  ///< among its owner's slices
  int chunk = 0;  ///< what it travels in, where copies send it
};

/// Pieces of one owner that one copy sends.
struct Chunk {
  int owner = 0;
  Range rows;
  Range cols;
  int first_slice = 0;
};

struct Partition {
  std::vector<Tile> tiles;    ///< what a task makes at once
  std::vector<Slice> slices;  ///< tile by tile, then owner by owner
  std::vector<Chunk> chunks;
  int most_slices = 0;  ///< that any owner has
};

/// Cut the m x n output. With algorithm one_shot every rank owns every tile. With compute = library all slices come
/// from one tile; or each chunk is one, where the release is by tile and owners have no columns.
[[nodiscard]] Partition partition_output(const Problem& problem, const Config& config, int num_ranks, Ownership share);

/// When `rank` makes each tile: remote owners' first, rank + 1 before rank + 2, its own last; on a ring the other way
/// round. What is added in turn counts as the last owner's, on all ranks alike.
[[nodiscard]] std::vector<int> stages_of(const Partition& cut, const Config& config, int num_ranks, int rank,
                                         Ownership share);

/// Pieces in the order in which `rank` adds to them: on a ring that in which they come, in rounds that of its tiles
/// (`walk`); else as they lie.
[[nodiscard]] std::vector<const Slice*> slices_in_order(const Partition& cut, const std::vector<int>& tile_order,
                                                        const Config& config, int num_ranks, int rank);

/// Where owners keep what others send them: a slot for each maker, one below the other.
struct Staging {
  Ownership share = Ownership::tiles;
  bool one_shot = false;
  int64_t m = 0, n = 0;
  int num_ranks = 1;
  int64_t rows = 0;  ///< of a slot
  int64_t cols = 0;
  int64_t slice_rows = 0;  ///< of a slot that a whole tile takes, where slices lie one below the other

  /// The place of a slice in the slot of `maker` at its owner.
  [[nodiscard]] Tile place(int maker, const Slice& slice) const;
};

[[nodiscard]] Staging staging_of(const Problem& problem, const Config& config, int num_ranks, Ownership share,
                                 const Partition& cut);

}  // namespace tilewire
