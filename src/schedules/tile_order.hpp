// In which order a rank turns to its peers and walks its tiles. One place for every schedule.
// Called by whatever builds plans: gather.cpp, reduce.cpp, the builder and what they are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// rank + 1, rank + 2, ... around the ring, all peers once (Flux 4.3: rank 5 of 8 is 6 7 0 1 2 3 4).
[[nodiscard]] std::vector<int> peers_after(int num_ranks, int rank);
/// rank - 1, rank - 2, ...: the order in which pushes by `peers_after` arrive.
[[nodiscard]] std::vector<int> peers_before(int num_ranks, int rank);

/// All ranks but `owner`, in the order in which they add their parts of a slice of a tile at that owner. NOTE: the
/// order is the tile's, from the rank before its last owner downwards, which is when they come to it by rank_shifted;
/// so no two ranks wait for each other, however many owners the tile has.
[[nodiscard]] std::vector<int> adders_of(int num_ranks, int last_owner, int owner);

/// `whole` in slices of `size`; 0 = one slice.
[[nodiscard]] std::vector<Range> cuts(Range whole, int64_t size);

/// One output tile in a grid of tiles, cut off at the edges.
struct Tile {
  Range rows;
  Range cols;
};

/// All tiles of a rows x cols matrix, row by row of tiles. Each of the shards of `num_ranks` ranks begins with a tile
/// of its own, so that no tile has rows of two, unless that takes more tiles.
[[nodiscard]] std::vector<Tile> tile_grid(int64_t rows, int64_t cols, int64_t tile_m, int64_t tile_n,
                                          int num_ranks = 1);
/// The same where no tile has columns of two of `columns`.
[[nodiscard]] std::vector<Tile> tile_grid(int64_t rows, const std::vector<Range>& columns, int64_t tile_m,
                                          int64_t tile_n, int num_ranks = 1);

/// Which stage of a walk is that of the rank's own rows; the last one of a round, or a while later (order_tiles).
enum class LocalTiles { first, last, last_of_round };
/// Of a reduction: tiles may be so long that parts which others make in the same turn leave during the next one, and
/// are summed before it ends, where tiles sum and nothing (bias, fp32, many ranks) has them do so at their own end
/// (docs/cuda.md, Sums in tiles). Then own tiles end their round.
[[nodiscard]] LocalTiles local_tiles_of_reduction(const Problem& problem, int num_ranks, const Config& config);
/// Indices into `tiles` in the order of their `stage` (stable), the stages of `group_owners` owners taken as one, and
/// within those `group_m` row tiles at a time, `cluster_n` columns of tiles after `cluster_n` columns. With `rounds`
/// (and `group_owners` = 1), each is cut into so many cuts of whole columns, a cut of every stage in turn: my own come
/// first and whole (a gather: the others are still on their way), or in cuts that are a quarter of the rounds late (a
/// reduction: what a rank sends spreads over its whole work); on a ring, each stage's as much later than the one's
/// before. Where a reduction's own rows share a stage with a peer's, they are one column late.
[[nodiscard]] std::vector<int> order_tiles(const std::vector<Tile>& tiles, const std::vector<int>& stage,
                                           const Config& config, LocalTiles mine);

/// The ranks whose shard of `extent` rows meets `rows`: {first, last + 1}.
[[nodiscard]] Range owners_of(Range rows, int64_t extent, int num_ranks);

/// When each tile of a gather can start: 0 = at once, i = when the shard of the i-th of `peers` is here.
[[nodiscard]] std::vector<int> stages_behind(const std::vector<Tile>& tiles, const std::vector<int>& peers,
                                             int64_t extent, int num_ranks);

}  // namespace tilewire
