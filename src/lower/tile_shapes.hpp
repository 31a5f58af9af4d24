// What the GEMM kernel of GPUs is compiled for: constants that passes share with it.
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

/// What the kernel is compiled for.
inline constexpr std::array<TileShape, 8> kTileShapes{
    {{256, 192}, {128, 256}, {256, 128}, {128, 192}, {128, 160}, {128, 128}, {128, 64}, {64, 128}}};
/// And bodies whose number of rows is told at the launch: any multiple of 8 from kFewestRows to these, so that rows are
/// cut without a rest. Their operands have changed places: tile rows are columns of the matrix instruction. Fewer rows
/// leave room for more stages.
inline constexpr std::array<TileShape, 3> kRuntimeRowShapes{{{120, 128}, {176, 128}, {248, 128}}};
inline constexpr int kFewestRows = 72;
[[nodiscard]] constexpr bool has_runtime_rows(TileShape shape) {
  const bool rows = shape.m >= kFewestRows && shape.m <= kRuntimeRowShapes.back().m && shape.m % 8 == 0;
  return rows && shape.m != 128 && shape.n == 128;  // 128 x 128 has a body of its own
}
/// The shape that the body of such tiles is compiled for: `shape` itself, or one of kRuntimeRowShapes.
[[nodiscard]] constexpr TileShape body_shape(TileShape shape) {
  if (!has_runtime_rows(shape)) return shape;
  return *std::ranges::find_if(kRuntimeRowShapes, [shape](TileShape body) { return shape.m <= body.m; });
}
/// Fewest rows that such a body takes.
[[nodiscard]] constexpr int least_rows(TileShape body) {
  int rows = kFewestRows;
  while (rows < body.m && (!has_runtime_rows({rows, 128}) || body_shape({rows, 128}) != body)) rows += 8;
  return rows;
}
[[nodiscard]] constexpr bool is_compiled(TileShape shape) {
  return has_runtime_rows(shape) || std::ranges::find(kTileShapes, shape) != kTileShapes.end();
}
inline constexpr int kTileK = 64;
inline constexpr int kThreads = 384;        ///< of a CTA
inline constexpr int kControlBytes = 3072;  ///< of its shared memory: barriers and records
inline constexpr int kChunkBytes =
    64 * 128;  ///< of a result on its way out: 64 rows x 128 bytes, swizzled by 128 bytes
/// Chunks of 16-bit results beside each other in so many columns of a tile.
[[nodiscard]] constexpr int chunks_across(int cols) { return (cols + 63) / 64; }
/// Where these are no multiple of 64, neighbours hold the same columns: through a tensor map they are stored twice.
[[nodiscard]] constexpr bool chunks_overlap(TileShape shape) { return shape.n % 64 != 0; }

/// Room for A and B of one step of K. B stored [K,N] comes in boxes of 64 columns.
[[nodiscard]] constexpr int stage_bytes(TileShape shape, bool b_is_kn) {
  return (body_shape(shape).m + (b_is_kn ? chunks_across(shape.n) * 64 : shape.n)) * kTileK * 2;
}
/// So many bytes of shared memory are for stages and for results on their way out, of which each consumer has two.
inline constexpr int kStageRoom = 232448 - kControlBytes;
[[nodiscard]] constexpr int num_stages(TileShape shape, bool b_is_kn) {
  return std::min(8, (kStageRoom - 4 * kChunkBytes) / stage_bytes(shape, b_is_kn));
}
/// Other parts of a sum, a chunk for each of the two consumers, that one stage holds.
[[nodiscard]] constexpr int partials_per_stage(TileShape shape) {
  return stage_bytes(shape, false) / (2 * kChunkBytes);
}

/// Whether registers hold a rounded tile beside the sums of the next one. Only then may a tile complete a sum.
[[nodiscard]] constexpr bool holds_results(TileShape shape) { return shape.m * shape.n <= 128 * 256; }
/// Whether these take all registers: epilogues other than one bias then have a body of their own.
[[nodiscard]] constexpr bool fills_registers(TileShape shape) { return shape.m * shape.n == 128 * 256; }
/// Most other parts of a sum that a tile completes: those of a chunk are in stages at once.
[[nodiscard]] constexpr int most_partials(TileShape shape) {
  return holds_results(shape) ? num_stages(shape, true) * partials_per_stage(shape) : 0;
}

/// Whether the rows of A of such a tile may come from two places (RowSplit), where no operand is shared.
[[nodiscard]] constexpr bool takes_splits(TileShape shape) { return shape.m == 256; }
/// So many rows come from the first place, or a multiple.
inline constexpr int kRowsOfSplit = 8;
/// Splits of a rank: the first and the last rows of a shard share a tile with other ranks' rows.
inline constexpr int kMostSplits = 2;

/// Boxes that finished tiles are stored in by tensor copies: rows, bytes of a row, and the rows of what is left of them
/// where a body has runtime rows.
inline constexpr int kStoreRows = 64;
inline constexpr int kStoreBytes = 128;
inline constexpr int kRestRows = 8;

/// Most writes of one tile.
inline constexpr int kMaxWrites = 16;

}  // namespace tilewire
