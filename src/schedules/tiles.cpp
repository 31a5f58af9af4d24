// Tiles that suit a problem on GPUs, by a model of the GEMM kernel (docs/cuda.md, The GEMM kernel) and by measurements.
// Called by the schedules' tables of candidates.
#include "schedules/tiles.hpp"

#include <algorithm>
#include <optional>

#include "core/ceil_div.hpp"
#include "lower/kernel_limits.hpp"
#include "schedules/knobs.hpp"

namespace tilewire {
namespace {

constexpr int64_t kFewRows = 64;     ///< one row of tiles
constexpr int64_t kManyRows = 1024;  ///< large tiles
/// Fewest and most rows of tiles whose rows are a runtime number.
constexpr int64_t kLeastRuntimeRows = 72;
constexpr int64_t kMostRuntimeRows = 248;
/// Most rows of tiles whose K several CTAs may share. They have a stage more than others with runtime rows, too.
constexpr int64_t kMostSharedRows = 176;

/// Columns of the result that a rank makes.
int64_t own_cols(const Workload& work) {
  if (!gathers(work.problem)) return work.problem.n;
  return columns_on(work.problem, work.team.num_ranks, 0).back().end;
}

/// Whether there are tiles that tensor cores make.
bool has_fast_tiles(const Problem& problem) { return multiplies(problem) && problem.dtype != DType::fp32; }

/// Tiles of a rank, if the rows of each of so many owners are cut apart.
int64_t tiles_of(const Workload& work, const TileChoice& tile, int owners = 1) {
  const int64_t rows = shard_of(made_rows(work), owners, 0).size();
  return owners * ceil_div(rows, tile.m) * ceil_div(own_cols(work), tile.n);
}

int64_t sms_with_tiles(const Workload& work) { return std::max<int64_t>(1, work.team.devices[0].sms - kOtherSms); }

/// Cycles of a step of K that so many SMs take for all tiles, which have one side of 128: what shared memory takes
/// (docs/cuda.md, The GEMM kernel).
int64_t time_of(const Workload& work, const TileChoice& tile, int owners, int64_t sms) {
  const int64_t cycles = 256 + 3 * (tile.m == 128 ? tile.n : tile.m);
  return ceil_div(tiles_of(work, tile, owners), sms) * cycles;
}

/// The tile of so many owners' rows that takes less time than all of 128 rows.
std::optional<TileChoice> faster_tile(const Workload& work, int owners) {
  const int64_t rows = shard_of(made_rows(work), owners, 0).size();
  const auto time = [&](const TileChoice& tile) { return time_of(work, tile, owners, sms_with_tiles(work)); };
  int64_t best = INT64_MAX;
  for (const int64_t cols : {128, 160, 192, 256}) best = std::min(best, time({128, cols}));
  std::optional<TileChoice> found;
  for (int64_t slices = ceil_div(rows, kMostRuntimeRows); rows > slices * (kLeastRuntimeRows - 8); ++slices) {
    const TileChoice tile{.m = size_of_each(rows, slices), .n = 128};
    if (tile.m == 128 || time(tile) >= best) continue;
    best = time(tile);
    found = tile;
  }
  return found;
}

/// Of a gather, whose peers' tiles begin after one's own: the fewest tiles that cut an owner's rows without a rest.
std::optional<TileChoice> tile_of_owner(const Workload& work) {
  const int64_t shard = shard_rows(work);
  if (!gathers_rows(work.problem) || shard <= 128 || work.problem.m >= kManyRows) return std::nullopt;
  const TileChoice tile{.m = size_of_each(shard, ceil_div(shard, kMostSharedRows)), .n = 128};
  return tile.m == 128 ? std::nullopt : std::optional(tile);
}

}  // namespace

bool on_gpus(const Team& team) {
  return !team.devices.empty() &&
         std::ranges::all_of(team.devices, [](const Device& device) { return device.sms > 0; });
}

bool on_gpus(const Workload& work) { return on_gpus(work.team); }

int64_t shard_rows(const Workload& work) { return shard_of(work.problem.m, work.team.num_ranks, 0).size(); }

int64_t made_rows(const Workload& work) { return exchanges(work.problem) ? shard_rows(work) : work.problem.m; }

int64_t part_of(int64_t whole, int64_t parts) { return std::max<int64_t>(1, ceil_div(whole, parts)); }

int64_t size_of_each(int64_t extent, int64_t tiles) { return 8 * ceil_div(extent, 8 * tiles); }

Tiles middle_tile(const Workload& work) {
  const TileChoice wide{.m = 128, .n = 192};
  if (!has_fast_tiles(work.problem)) return {wide};
  const TileChoice narrow{.m = 128, .n = 160};
  const int64_t sms = std::max(1, work.team.devices[0].sms);
  return {time_of(work, narrow, 1, sms) < time_of(work, wide, 1, sms) ? narrow : wide};
}

Tiles usual_tiles(const Workload& work) {
  if (made_rows(work) <= kFewRows) return {{64, 128}};
  const TileChoice middle = middle_tile(work).front();
  if (made_rows(work) < kManyRows) return {middle, {128, 128}, {128, 256, 2}};
  return {{128, 256, 2}, middle, {128, 256}};
}

Tiles first_tile(const Workload& work) { return {usual_tiles(work).front()}; }

Tiles first_two_tiles(const Workload& work) {
  Tiles tiles = usual_tiles(work);
  tiles.resize(std::min<size_t>(tiles.size(), 2));
  return tiles;
}

Tiles other_tiles(const Workload& work) {
  const Tiles tiles = usual_tiles(work);
  return {tiles.begin() + 1, tiles.end()};
}

Tiles pair_of_192_columns(const Workload& /*work*/) { return {{.m = 128, .n = 192, .cluster_m = 2}}; }

Tiles largest_tile(const Workload& /*work*/) { return {{.m = 256, .n = 192, .cluster_n = 2}}; }

Tiles tiles_of_runtime_rows(const Workload& work) {
  if (!has_fast_tiles(work.problem)) return {};
  Tiles tiles;
  const auto add = [&](const std::optional<TileChoice>& tile) {
    if (tile && std::ranges::find(tiles, *tile) == tiles.end()) tiles.push_back(*tile);
  };
  if (made_rows(work) > kFewRows) {
    add(faster_tile(work, work.team.num_ranks));
    add(faster_tile(work, 1));
  }
  add(tile_of_owner(work));
  return tiles;
}

TileChoice row_of_tiles(const Workload& work) {
  const int64_t rows = made_rows(work);
  const int64_t shard = gathers(work.problem) ? shard_rows(work) : 0;
  if (rows <= kFewRows) return {64, 128};
  if (!has_fast_tiles(work.problem)) return {128, 128};
  if (rows <= kMostSharedRows) return {std::max(kLeastRuntimeRows, size_of_each(rows, 1)), 128};
  return {shard > 128 && shard <= kMostSharedRows ? size_of_each(shard, 1) : 128, 128};
}

Tiles one_row_of_tiles(const Workload& work) { return {row_of_tiles(work)}; }

Tiles tiles_that_share_k(const Workload& work) {
  constexpr int64_t kBeside = 48;  // SMs that copy, sum, or make no whole cluster
  constexpr int64_t kLeast = 512;  // columns of A for each part
  constexpr int64_t kMost = 8;
  if (!has_fast_tiles(work.problem)) return {};
  const Problem& problem = work.problem;
  const int64_t depth = reduces(problem) ? problem.k / work.team.num_ranks : problem.k;
  TileChoice tile = row_of_tiles(work);
  const int64_t tiles = tiles_of(work, tile);
  const int64_t parts = std::max<int64_t>(1, (work.team.devices[0].sms - kBeside) / std::max<int64_t>(1, tiles));
  Tiles list;
  for (const int64_t each : {parts, parts + 1}) {
    const int64_t most = std::min({each, kMost, depth / kLeast});
    // Of more than 128 rows only 2, 3 or 6 CTAs take turns in adding what all have.
    tile.cluster_split_k = static_cast<int>(tile.m <= 128 || most < 4 ? most : most / 3 * 3);
    if (tile.cluster_split_k > 1 && (list.empty() || list.back() != tile)) list.push_back(tile);
  }
  return list;
}

Tiles gemv_tile(const Workload& work) {
  const Problem& problem = work.problem;
  const bool alone = work.team.num_ranks == 1;
  const int64_t sms = work.team.devices[0].sms - (alone ? 0 : kBesideGemv);
  const bool even = problem.n % kGemvUnit == 0 && problem.k > 0 && problem.k % (kGemvUnit * work.team.num_ranks) == 0;
  if (!multiplies(problem) || out_dtype_of(problem) != problem.dtype) return {};
  if (!even || problem.n == 0 || sms < 1) return {};
  const int64_t most = most_gemv_cols(problem.dtype) / columns_of_b(problem, 1);
  // Without sums over ranks tiles need not be resident together.
  const int64_t waves = alone ? ceil_div(problem.n, sms * most) : 1;
  const TileChoice tile{.m = kMostGemvRows, .n = size_of_each(problem.n, sms * waves)};
  return tile.n <= most ? Tiles{tile} : Tiles{};
}

Tiles part_of_row(const Workload& work) {
  const Problem& problem = work.problem;
  const bool fits = problem.n > 0 && problem.n % kGemvUnit == 0;
  const bool same = bytes_of(problem.dtype) == 2 && out_dtype_of(problem) == problem.dtype;
  const int64_t ctas = work.team.devices[0].sms - kBesideGemv;
  if (!fits || !same || problem.m < 1 || problem.m > ctas) return {};
  // NOTE: with a norm the CTAs of a row are a cluster. Of CTAs that fill an SM, three quarters of the SMs can have
  // clusters of more than two.
  const auto suits = [&](int64_t parts) {
    const bool wide = problem.norm && parts > 2 && problem.n / parts > kMostPartCols / 8;
    return problem.n % (kGemvUnit * parts) == 0 && problem.m * parts <= (wide ? ctas * 3 / 4 : ctas);
  };
  int64_t parts = kMostRowParts;
  while (parts > 1 && !suits(parts)) --parts;
  if (problem.n / parts > kMostPartCols) return {};
  return {{.m = 1, .n = static_cast<int>(problem.n / parts)}};
}

int64_t waves_of(const Workload& work, const TileChoice& tile) {
  return ceil_div(tiles_of(work, tile), sms_with_tiles(work));
}

bool fills_waves(const Workload& work, const TileChoice& tile) {
  if (work.team.devices[0].sms <= kOtherSms || !has_fast_tiles(work.problem)) return false;
  const int64_t room = waves_of(work, tile) * sms_with_tiles(work) * tile.m * tile.n;
  return 8 * made_rows(work) * own_cols(work) >= 7 * room;
}

bool leaves_sms(const Workload& work, const TileChoice& tile, int64_t some) {
  const int64_t sms = work.team.devices[0].sms;
  const int64_t tiles = tiles_of(work, tile);
  return has_fast_tiles(work.problem) && 4 * tiles >= 3 * sms && tiles <= sms - kOtherSms - some;
}

Config with_tile(Config config, const Workload& work, const TileChoice& tile) {
  constexpr int64_t kGroupRows = 2048;  // that stay in the L2 cache while columns pass
  config.tile_m = tile.m;
  config.tile_n = tile.n;
  if (!multiplies(work.problem)) return config;
  config.cluster_m = tile.cluster_m;
  config.cluster_n = tile.cluster_n;
  config.cluster_split_k = tile.cluster_split_k;
  if (made_rows(work) > tile.m) config.group_m = std::max<int64_t>(1, kGroupRows / tile.m);
  return config;
}

}  // namespace tilewire
