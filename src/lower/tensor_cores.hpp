// Which tiles tensor cores make.
// Used by passes and by the cuda backend.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "lower/tile_shapes.hpp"
#include "tilewire/plan.hpp"

namespace tilewire {

/// The shape of the kernel's tile.
[[nodiscard]] inline TileShape tile_shape_of(const GemmParams& gemm) {
  return {static_cast<int>(gemm.tile_m), static_cast<int>(gemm.tile_n)};
}

/// What tiles of one kernel have in common: type of A and B, layout of B, tile shape.
[[nodiscard]] inline auto kernel_of(const Plan& plan, const Task& tile) {
  return std::tuple(plan.buffers[tile.reads[0].buffer].dtype, tile.gemm.b_layout, tile.gemm.tile_m, tile.gemm.tile_n);
}

/// Whether rows of a region's buffer, where they are dense, begin as tensor copies want it: at multiples of 16 bytes.
[[nodiscard]] bool has_aligned_rows(const Plan& plan, const Region& region);

/// The first product of the plan by the kernel of tiles, or by the library where none is, or nothing.
[[nodiscard]] const Task* first_product(const Plan& plan);

/// Whether a tile's finished chunks lie row by row, as bulk copies take them, not swizzled as tensor copies do.
[[nodiscard]] inline bool leaves_by_bulk(const Task& tile) {
  return std::ranges::find(tile.writes, Via::bulk, &Write::via) != tile.writes.end();
}

/// Whether tensor copies can store what a tile writes there: boxes of 64 rows x 128 bytes lie in the region whole, or
/// end with the buffer. What depends on addresses alone, alignment, is found when tables are made.
[[nodiscard]] bool fits_tensor_store(const Plan& plan, const Task& tile, const Write& write);

/// Whether two tiles that follow each other in their lane can be the two CTAs of a cluster: they load the same of the
/// operand that they share, over the same K, and complete sums of as many addends at the same time.
[[nodiscard]] bool are_pair(const Plan& plan, const Task& x, const Task& y);

/// Why tensor cores cannot take a tile (type, tile shape, epilogue, destinations, addends), or nothing. What depends on
/// addresses alone, alignment, is found when tables are made.
[[nodiscard]] std::optional<std::string> slow_tile(const Plan& plan, const Task& task);

/// The same for all tiles of the plan, but for those of lanes with a kernel of their own (part_slow_tiles).
[[nodiscard]] std::optional<std::string> slow_tiles(const Plan& plan);

/// Share of the plan's multiply-adds by tiles that run without tensor cores, 0 to 1.
[[nodiscard]] double slow_share(const Plan& plan);

/// The same for the way out of one task's result: its epilogue and destinations. `operands`: type of the tiles' A and
/// B.
[[nodiscard]] std::optional<std::string> slow_exit(const Plan& plan, const Task& task, DType operands);

}  // namespace tilewire
