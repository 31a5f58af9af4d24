// The records of grouped GEMMs: families of tiles, whose number the extents of groups decide on the device.
// Made on the host, uploaded once; the scheduler warps of the GEMM kernel make TileRecords from them (gemm_groups.cuh).
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/tile_table.hpp"
#include "lower/tile_shapes.hpp"
#include "tilewire/activation.hpp"

namespace tilewire::cuda {

/// The bodies for groups: most rows of a tile, and the lines of B that it takes. A tile has any multiple of 8 rows up
/// to these. A gated tile has a gate and an up for each column: half as many columns as lines.
inline constexpr TileShape kWideGroups{128, 256};
inline constexpr TileShape kNarrowGroups{128, 128};
/// Tensor maps of A: boxes of 128 rows, 64, ... down to 8 rows.
inline constexpr int kMostGroupRows = 128;
inline constexpr int kGroupBoxes = 5;

/// One grouped GEMM: for each group, its rows of A times its B. Each tile is of one group, whose row tiles come first.
/// A family without rows has one tile without results, which posts.
struct alignas(16) FamilyRecord {
  const int32_t* extents = nullptr;  ///< of its first group: the first row; may be relative
  int32_t extents_ld = 0;            ///< elements from there to the end of the same group
  int32_t groups = 0;
  int32_t most_rows = 0;    ///< of the memory of A and of the results
  int32_t first_group = 0;  ///< number of the first group in the B map
  int32_t first_col = 0;    ///< first column of the results
  int32_t cols = 0;         ///< columns of the results; their end is a multiple of 64, or that of the output
  int32_t k_steps = 0;
  uint16_t a_map = 0;  ///< the first of kGroupBoxes maps
  uint16_t b_map = 0;
  uint16_t c_map = 0;     ///< of the output, in boxes of 64 rows
  uint16_t rest_map = 0;  ///< the same in boxes of 8 rows
  uint32_t first_wait = 0;
  uint32_t first_post = 0;
  uint16_t num_waits = 0;
  /// The first of these waits, so many, are for the extents. NOTE: these must not depend on tiles of the same kernel,
  /// which a CTA may hold back until its next tile is known.
  uint16_t num_early = 0;
  uint16_t num_posts = 0;
  Activation activation = Activation::none;
  uint32_t task = 0;          ///< number of the task, for reports
  uint32_t* ended = nullptr;  ///< counts tiles that have ended; zero between calls
};

}  // namespace tilewire::cuda
