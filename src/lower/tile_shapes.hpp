// The tile shapes of the compiled GEMM kernels, and their limits: constants that passes share with the kernel.
// Used by passes and by the cuda backend.
#pragma once

#include <algorithm>
#include <array>

namespace tilewire {

struct TileShape {
  int m = 128;
  int n = 256;

  bool operator==(const TileShape&) const = default;
};

/// The fixed tile shapes.
inline constexpr std::array<TileShape, 8> kTileShapes{
    {{256, 192}, {128, 256}, {256, 128}, {128, 192}, {128, 160}, {128, 128}, {128, 64}, {64, 128}}};
/// Largest tiles of the bodies with runtime rows (swap-AB): the launch gives the number of rows, any multiple of 8 from
/// kFewestRows to these, so that M is cut without a remainder. Tile rows are columns of the matrix instruction. Bodies
/// with fewer rows have room for more stages.
inline constexpr std::array<TileShape, 3> kRuntimeRowShapes{{{120, 128}, {176, 128}, {248, 128}}};
inline constexpr int kFewestRows = 72;
[[nodiscard]] constexpr bool has_runtime_rows(TileShape shape) {
  const bool rows = shape.m >= kFewestRows && shape.m <= kRuntimeRowShapes.back().m && shape.m % 8 == 0;
  return rows && shape.m != 128 && shape.n == 128;  // 128 x 128 has a fixed body
}
/// The shape of the body that makes such tiles: `shape` itself, or one of kRuntimeRowShapes.
[[nodiscard]] constexpr TileShape body_shape(TileShape shape) {
  if (!has_runtime_rows(shape)) return shape;
  return *std::ranges::find_if(kRuntimeRowShapes, [shape](TileShape body) { return shape.m <= body.m; });
}
/// Fewest rows of the tiles that a body makes.
[[nodiscard]] constexpr int least_rows(TileShape body) {
  int rows = kFewestRows;
  while (rows < body.m && (!has_runtime_rows({rows, 128}) || body_shape({rows, 128}) != body)) rows += 8;
  return rows;
}
[[nodiscard]] constexpr bool is_compiled(TileShape shape) {
  return has_runtime_rows(shape) || std::ranges::find(kTileShapes, shape) != kTileShapes.end();
}
inline constexpr int kTileK = 64;
inline constexpr int kThreads = 384;          ///< threads of a CTA
inline constexpr int kControlBytes = 3072;    ///< shared memory of a CTA for barriers and records
inline constexpr int kChunkBytes = 64 * 128;  ///< one chunk of a result: 64 rows x 128 bytes, with the 128-byte swizzle
/// Chunks of 16-bit results, side by side, in `cols` columns of a tile.
[[nodiscard]] constexpr int chunks_across(int cols) { return (cols + 63) / 64; }
/// Whether neighbouring chunks overlap, because n is not a multiple of 64: a tensor map stores the common columns
/// twice.
[[nodiscard]] constexpr bool chunks_overlap(TileShape shape) { return shape.n % 64 != 0; }

/// Bytes of one stage: A and B of one step of K. B stored [K,N] comes in boxes of 64 columns.
[[nodiscard]] constexpr int stage_bytes(TileShape shape, bool b_is_kn) {
  return (body_shape(shape).m + (b_is_kn ? chunks_across(shape.n) * 64 : shape.n)) * kTileK * 2;
}
/// Shared memory for the stages and for the result chunks, two of each consumer.
inline constexpr int kStageRoom = 232448 - kControlBytes;
[[nodiscard]] constexpr int num_stages(TileShape shape, bool b_is_kn) {
  return std::min(8, (kStageRoom - 4 * kChunkBytes) / stage_bytes(shape, b_is_kn));
}
/// Addends of a sum that one stage holds, one chunk for each of the two consumers.
[[nodiscard]] constexpr int partials_per_stage(TileShape shape) {
  return stage_bytes(shape, false) / (2 * kChunkBytes);
}

/// Whether registers can hold a rounded tile beside the accumulators of the next one. Only then may a tile complete a
/// sum.
[[nodiscard]] constexpr bool holds_results(TileShape shape) { return shape.m * shape.n <= 128 * 256; }
/// Whether results and accumulators take all registers: epilogues other than one bias then have a body of their own.
[[nodiscard]] constexpr bool fills_registers(TileShape shape) { return shape.m * shape.n == 128 * 256; }
/// Most addends of a tile that completes a sum: all addends of a chunk are in the stages at once.
[[nodiscard]] constexpr int most_partials(TileShape shape) {
  return holds_results(shape) ? num_stages(shape, true) * partials_per_stage(shape) : 0;
}

/// Whether such a tile may load its rows of A from two places (RowSplit), without sharing an operand.
[[nodiscard]] constexpr bool takes_splits(TileShape shape) { return shape.m == 256; }
/// The number of rows from the first place is a multiple of this.
inline constexpr int kRowsOfSplit = 8;
/// Most splits of a rank: the first and the last rows of a shard share a tile with other ranks' rows.
inline constexpr int kMostSplits = 2;

/// Boxes of tensor stores: rows, bytes of a row, and the rows of the box for the remainder in bodies with runtime rows.
inline constexpr int kStoreRows = 64;
inline constexpr int kStoreBytes = 128;
inline constexpr int kRestRows = 8;

/// Most writes of one tile.
inline constexpr int kMaxWrites = 16;

}  // namespace tilewire
