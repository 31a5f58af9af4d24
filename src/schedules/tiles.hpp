// Tiles that suit a problem on GPUs: shapes, clusters, CTAs that share K. A model of the GEMM kernel (docs/cuda.md, The
// GEMM kernel) and measurements (docs/decisions.md). Called by the schedules' tables of candidates.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/spi/schedule.hpp"

namespace tilewire {

using Tiles = std::vector<TileChoice>;

/// Whether every rank is a GPU.
[[nodiscard]] bool on_gpus(const Team& team);
[[nodiscard]] bool on_gpus(const Workload& work);
/// Rows of the largest shard.
[[nodiscard]] int64_t shard_rows(const Workload& work);
/// Rows of the product that a rank makes.
[[nodiscard]] int64_t made_rows(const Workload& work);
/// Rows of each of so many parts of `whole`, the last of which may be smaller: at least 1.
[[nodiscard]] int64_t part_of(int64_t whole, int64_t parts);
/// Rows, or columns, of each of so many tiles that cut `extent` without a rest: a multiple of 8.
[[nodiscard]] int64_t size_of_each(int64_t extent, int64_t tiles);

/// Up to 64 rows: 64 x 128. Up to 1,023: `middle_tile`, then 128 x 128, then pairs of 128 x 256. More: pairs of 128 x
/// 256, `middle_tile`, 128 x 256 alone. A GPU by itself is faster with pairs; a GPU that receives stores is not.
[[nodiscard]] Tiles usual_tiles(const Workload& work);
[[nodiscard]] Tiles first_tile(const Workload& work);
[[nodiscard]] Tiles first_two_tiles(const Workload& work);
/// All of the usual tiles but the first.
[[nodiscard]] Tiles other_tiles(const Workload& work);
/// 128 x 192, or 128 x 160 where the waves then take less time.
[[nodiscard]] Tiles middle_tile(const Workload& work);
[[nodiscard]] Tiles pair_of_192_columns(const Workload& work);
/// 256 x 192 in pairs along n: the tile that reads the fewest bytes.
[[nodiscard]] Tiles largest_tile(const Workload& work);
/// 128 columns, and a number of rows that only the launch knows: cuts the rows of each owner, or all rows, without a
/// rest, where the waves then take less time than those of any tile of 128 rows. May be none.
[[nodiscard]] Tiles tiles_of_runtime_rows(const Workload& work);
/// 128 columns and all rows where these are few; of a gather, all rows of an owner; else 128 rows.
[[nodiscard]] TileChoice row_of_tiles(const Workload& work);
[[nodiscard]] Tiles one_row_of_tiles(const Workload& work);
/// `row_of_tiles`, with so many CTAs for each tile that about all SMs have one, but for 48 that copy and sum; and with
/// one CTA more. None where tiles are many, K is short, or tensor cores do not take the tile.
[[nodiscard]] Tiles tiles_that_share_k(const Workload& work);

/// Of up to 16 rows: all rows, and as many columns as give each SM a tile (a rank alone: or several), for the GEMV
/// kernel. None where it does not
/// take the problem: B [N, K], 16-bit types, K of a rank and N in multiples of 8.
[[nodiscard]] Tiles gemv_tile(const Workload& work);
/// A part of one row for each CTA of the kernel of rows: of few rows up to eight parts of each. None where the kernel
/// does not take the type or the sizes.
[[nodiscard]] Tiles part_of_row(const Workload& work);

/// SMs without a tile: they copy, sum, wait and post.
inline constexpr int64_t kOtherSms = 4;

/// Waves in which the other SMs make the tiles of a rank.
[[nodiscard]] int64_t waves_of(const Workload& work, const TileChoice& tile);
/// Whether the waves are nearly full of tensor-core tiles.
[[nodiscard]] bool fills_waves(const Workload& work, const TileChoice& tile);
/// Whether one wave of tensor-core tiles takes most SMs and leaves kOtherSms and `some`.
[[nodiscard]] bool leaves_sms(const Workload& work, const TileChoice& tile, int64_t some);

/// `config` with these tiles, in groups of rows that stay in the L2 cache while columns pass.
[[nodiscard]] Config with_tile(Config config, const Workload& work, const TileChoice& tile);

}  // namespace tilewire
