// Which tiles suit a problem on GPUs: shapes, clusters, parts of K.
// Used by the files of choices, which make configs of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// The problem as one rank's tiles see it: where they make its own rows alone, it has no others.
[[nodiscard]] Problem made_by_a_rank(const Problem& problem, const Team& team);

struct TileChoice {
  int64_t m = 128;
  int64_t n = 256;
  int cluster_m = 1;
  int cluster_n = 1;
  int cluster_split_k = 1;
};

/// Rows of all ranks up to which there are few, some, ...
inline constexpr int64_t kM64 = 64;
inline constexpr int64_t kM128 = 128;
inline constexpr int64_t kM512 = 512;
inline constexpr int64_t kM1024 = 1024;
/// And up to which SMs may copy faster than engines in a gather of more than two ranks, whose slices for each are
/// short.
inline constexpr int64_t kMostGathered = 4096;

/// Each of so many parts of `whole`, the last of which may be smaller: at least 1.
[[nodiscard]] int64_t part_of(int64_t whole, int64_t parts);
/// Rows, or columns, of each of so many tiles that cut `extent` without a rest: a multiple of 8.
[[nodiscard]] int64_t size_of_each(int64_t extent, int64_t tiles);

/// Tiles for so many rows: large ones where there are many, else as many as keep the SMs busy. Large ones in pairs, and
/// alone: a GPU of its own is faster with these, one to which others send has less to spare for what pairs save.
[[nodiscard]] std::vector<TileChoice> tiles_for(const Problem& problem, const Team& team);

/// Tiles of 192 columns, or of 160 where all SMs then end earlier: fewer turns, or turns that are shorter. 192 where no
/// tensor cores take them.
[[nodiscard]] TileChoice middle_tile(const Problem& problem, const Team& team);

/// Tiles of 128 columns whose rows are a runtime number: as many as cut the rows of each owner, or all rows, without a
/// rest, where all SMs then end earlier than with tiles of 128 rows that are cut likewise. (A grid of 128 rows may have
/// fewer tiles, some of which straddle owners; that costs more than this counts.)
[[nodiscard]] std::vector<TileChoice> free_tiles(const Problem& problem, const Team& team);

/// A tile for all rows where they are few, or that has each owner's rows of a gather; else one of 128 rows. Several
/// CTAs may share its K.
[[nodiscard]] TileChoice row_of_tiles(const Problem& problem, const Team& team);

/// Of a gather, whose peers' tiles begin after one's own: the fewest tiles of at most 176 rows that cut an owner's rows
/// without a rest. None where rows are few or many, or tiles have 128 rows, as others do.
[[nodiscard]] std::optional<TileChoice> tile_of_owner(const Problem& problem, const Team& team);

/// `tile` with so many CTAs for each that about all SMs have one, but for some that copy and sum; and with one more. Of
/// more than 128 rows less than that, where they would not take turns. None where tiles are many, or K is short, or no
/// tensor cores take the tiles.
[[nodiscard]] std::vector<TileChoice> in_parts_of_k(const Problem& problem, const Team& team, TileChoice tile);

/// SMs that have no tile: they copy, sum, wait and post.
inline constexpr int64_t kOtherSms = 4;

/// Turns in which the other SMs take the tiles of a rank.
[[nodiscard]] int64_t waves_of(const Problem& problem, const Team& team, const TileChoice& tile);

/// Whether these SMs nearly all have a tile of tensor cores in each turn, and nearly all of it is needed.
[[nodiscard]] bool fills_waves(const Problem& problem, const Team& team, const TileChoice& tile);

/// Whether one turn of such tiles of tensor cores takes most SMs, and leaves kOtherSms and `some`.
[[nodiscard]] bool leaves_sms(const Problem& problem, const Team& team, const TileChoice& tile, int64_t some);

/// `config` with these tiles, of rows that stay in the L2 cache while columns pass.
[[nodiscard]] Config with_tile(Config config, const Problem& problem, const TileChoice& tile);
/// `config` with each of the first `most` of tiles_for.
[[nodiscard]] std::vector<Config> with_tiles(const Config& config, const Problem& problem, const Team& team,
                                             size_t most);

/// Put `more` behind what is in `list`.
void append(std::vector<Config>& list, const std::vector<Config>& more);

}  // namespace tilewire
