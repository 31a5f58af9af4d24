// Decides which tiles tensor cores make.
// Used by passes and by the cuda backend.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "lower/tile_shapes.hpp"
#include "tilewire/plan.hpp"

namespace tilewire {

/// The tile shape of the kernel.
[[nodiscard]] inline TileShape tile_shape_of(const GemmParams& gemm) {
  return {static_cast<int>(gemm.tile_m), static_cast<int>(gemm.tile_n)};
}

/// The properties that all tiles of one kernel share: type of A and B, layout of B, tile shape.
[[nodiscard]] inline auto kernel_of(const Plan& plan, const Task& tile) {
  return std::tuple(plan.buffers[tile.reads[0].buffer].dtype, tile.gemm.b_layout, tile.gemm.tile_m, tile.gemm.tile_n);
}

/// Whether rows of a region's buffer, if dense, are aligned to 16 bytes, as tensor copies need.
[[nodiscard]] bool has_aligned_rows(const Plan& plan, const Region& region);

/// The plan's first tile of the first kernel, else its first library GEMM, else null.
[[nodiscard]] const Task* first_product(const Plan& plan);

/// Whether a tile's finished chunks are row-major in shared memory, for bulk copies, not swizzled for tensor copies.
[[nodiscard]] inline bool leaves_by_bulk(const Task& tile) {
  return std::ranges::find(tile.writes, Via::bulk, &Write::via) != tile.writes.end();
}

/// Whether tensor copies can store a write of a tile: boxes of 64 rows x 128 bytes fit into the region, or end with the
/// buffer. The alignment of addresses is checked when tables are made.
[[nodiscard]] bool fits_tensor_store(const Plan& plan, const Task& tile, const Write& write);

/// Whether two neighbouring tiles of a lane can be the two CTAs of a cluster: they load the same part of the shared
/// operand over the same K, and complete sums with equally many addends at the same time.
[[nodiscard]] bool are_pair(const Plan& plan, const Task& x, const Task& y);

/// The reason why tensor cores cannot take a tile (type, tile shape, epilogue, destinations, addends), or nothing. The
/// alignment of addresses is checked when tables are made.
[[nodiscard]] std::optional<std::string> slow_tile(const Plan& plan, const Task& task);

/// The same for all tiles of the plan, except those of lanes with a kernel of their own (part_slow_tiles).
[[nodiscard]] std::optional<std::string> slow_tiles(const Plan& plan);

/// Share of the plan's multiply-adds in tiles without tensor cores, 0 to 1.
[[nodiscard]] double slow_share(const Plan& plan);

/// The same for a task's epilogue and destinations alone. `operands`: type of A and B of the tiles.
[[nodiscard]] std::optional<std::string> slow_exit(const Plan& plan, const Task& task, DType operands);

}  // namespace tilewire
