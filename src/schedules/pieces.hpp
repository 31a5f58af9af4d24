// How the output of a reduction is cut: tiles that are made, pieces that are summed, chunks that are sent.
// Called by reduce.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/order.hpp"
#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Who sums which part of the output.
enum class Share {
  rows,    ///< the owner of the rows (reduce-scatter)
  tiles,   ///< a run of whole tiles each
  slices,  ///< 1/n of every tile each
};

/// Part of one tile that one rank sums. Rows and columns are global.
struct Piece {
  int tile = 0;  ///< index of the tile that contains it
  int owner = 0;
  Range rows;
  Range cols;
  int index = 0;  ///< among its owner's pieces
  int chunk = 0;  ///< what it travels in, where copies send it
};

/// Pieces of one owner that one copy sends.
struct Chunk {
  int owner = 0;
  Range rows;
  Range cols;
  int first_piece = 0;
};

struct OutputCut {
  std::vector<Tile> tiles;    ///< what a task makes at once
  std::vector<Piece> pieces;  ///< tile by tile, then owner by owner
  std::vector<Chunk> chunks;
  int most_pieces = 0;  ///< that any owner has
};

/// Cut the m x n output. With algorithm one_shot every rank owns every tile. With compute = library all pieces come
/// from one tile; or each chunk is one, where the release is by tile.
[[nodiscard]] OutputCut cut_output(const Problem& problem, const Config& config, int num_ranks, Share share);

}  // namespace tilewire
