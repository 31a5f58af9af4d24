// What suits a problem, by a model of the GEMM kernel (docs/cuda.md, The GEMM kernel) and by what was measured.
// Called by the files of choices.
#include "schedules/gpu_tiles.hpp"

#include <algorithm>
#include <optional>

#include "core/ceil_div.hpp"
#include "schedules/knobs.hpp"

namespace tilewire {
namespace {

/// Fewest and most rows of tiles whose rows are a runtime number.
constexpr int64_t kFewestRows = 72;
constexpr int64_t kMostRows = 248;
/// Most rows of tiles whose K several CTAs may share. They have a stage more than others with runtime rows, too.
constexpr int64_t kCutRows = 176;

/// Columns of the result that a rank makes.
int64_t own_cols(const Problem& problem, const Team& team) {
  return gathers(problem) ? columns_on(problem, team.num_ranks, 0).back().end : problem.n;
}

/// Whether there are tiles that tensor cores make.
bool has_fast_tiles(const Problem& problem) { return multiplies(problem) && problem.dtype != DType::fp32; }

/// Tiles of all rows, which are cut for each of so many owners.
int64_t tiles_of(const Problem& problem, const Team& team, const TileChoice& tile, int owners = 1) {
  const int64_t rows = shard_of(problem.m, owners, 0).size();
  return owners * ceil_div(rows, tile.m) * ceil_div(own_cols(problem, team), tile.n);
}

int64_t sms_with_tiles(const Team& team) { return std::max<int64_t>(1, team.devices[0].sms - kOtherSms); }

/// Cycles of a step of K that so many SMs take for all tiles, which have one side of 128: what shared memory takes
/// (docs/cuda.md, The GEMM kernel).
int64_t time_of(const Problem& problem, const Team& team, const TileChoice& tile, int owners, int64_t sms) {
  const int64_t cycles = 256 + 3 * (tile.m == 128 ? tile.n : tile.m);
  return ceil_div(tiles_of(problem, team, tile, owners), sms) * cycles;
}

}  // namespace

Problem made_by_a_rank(const Problem& problem, const Team& team) {
  Problem mine = problem;
  if (exchanges(problem)) mine.m = shard_of(problem.m, team.num_ranks, 0).size();
  return mine;
}

int64_t part_of(int64_t whole, int64_t parts) { return std::max<int64_t>(1, ceil_div(whole, parts)); }

int64_t size_of_each(int64_t extent, int64_t tiles) { return 8 * ceil_div(extent, 8 * tiles); }

TileChoice middle_tile(const Problem& problem, const Team& team) {
  const TileChoice wide{.m = 128, .n = 192};
  if (!has_fast_tiles(problem)) return wide;
  const TileChoice narrow{.m = 128, .n = 160};
  const int64_t sms = std::max(1, team.devices[0].sms);
  return time_of(problem, team, narrow, 1, sms) < time_of(problem, team, wide, 1, sms) ? narrow : wide;
}

std::vector<TileChoice> free_tiles(const Problem& problem, const Team& team) {
  if (!has_fast_tiles(problem) || problem.m <= kM64) return {};
  const int64_t sms = sms_with_tiles(team);
  std::vector<TileChoice> list;
  for (const int owners : {team.num_ranks, 1}) {
    const int64_t rows = shard_of(problem.m, owners, 0).size();
    const auto time = [&](const TileChoice& tile) { return time_of(problem, team, tile, owners, sms); };
    int64_t best = INT64_MAX;
    for (const int64_t cols : {128, 160, 192, 256}) best = std::min(best, time({128, cols}));
    std::optional<TileChoice> found;
    for (int64_t slices = ceil_div(rows, kMostRows); rows > slices * (kFewestRows - 8); ++slices) {
      const TileChoice tile{.m = size_of_each(rows, slices), .n = 128};
      if (tile.m == 128 || time(tile) >= best) continue;
      best = time(tile);
      found = tile;
    }
    if (found && (list.empty() || list[0].m != found->m)) list.push_back(*found);
  }
  return list;
}

TileChoice row_of_tiles(const Problem& problem, const Team& team) {
  const int64_t shard = gathers(problem) ? shard_of(problem.m, team.num_ranks, 0).size() : 0;
  if (problem.m <= kM64) return {64, 128};
  if (!has_fast_tiles(problem)) return {kM128, 128};
  if (problem.m <= kCutRows) return {std::max(kFewestRows, size_of_each(problem.m, 1)), 128};
  return {shard > kM128 && shard <= kCutRows ? size_of_each(shard, 1) : kM128, 128};
}

std::optional<TileChoice> tile_of_owner(const Problem& problem, const Team& team) {
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  if (!has_fast_tiles(problem) || shard <= kM128 || problem.m >= kM1024) return std::nullopt;
  const TileChoice tile{.m = size_of_each(shard, ceil_div(shard, kCutRows)), .n = 128};
  return tile.m == 128 ? std::nullopt : std::optional(tile);
}

std::vector<TileChoice> tiles_for(const Problem& problem, const Team& team) {
  if (problem.m <= kM64) return {{64, 128}};
  const TileChoice middle = middle_tile(problem, team);
  if (problem.m < kM1024) return {middle, {128, 128}, {128, 256, 2}};
  return {{128, 256, 2}, middle, {128, 256}};
}

std::vector<TileChoice> in_parts_of_k(const Problem& problem, const Team& team, TileChoice tile) {
  constexpr int64_t kBeside = 48;  // SMs that copy, sum, or make no whole cluster
  constexpr int64_t kLeast = 512;  // columns of A for each part
  constexpr int64_t kMost = 8;
  if (!has_fast_tiles(problem)) return {};
  const int64_t depth = gathers(problem) || exchanges(problem) ? problem.k : problem.k / team.num_ranks;
  const int64_t tiles = tiles_of(problem, team, tile);
  const int64_t parts = std::max<int64_t>(1, (team.devices[0].sms - kBeside) / std::max<int64_t>(1, tiles));
  std::vector<TileChoice> list;
  for (const int64_t each : {parts, parts + 1}) {
    const int64_t most = std::min({each, kMost, depth / kLeast});
    // Of more than 128 rows only 2, 3 or 6 CTAs take turns in adding what all have.
    tile.cluster_split_k = static_cast<int>(tile.m <= kM128 || most < 4 ? most : most / 3 * 3);
    const bool known = !list.empty() && list.back().cluster_split_k == tile.cluster_split_k;
    if (tile.cluster_split_k > 1 && !known) list.push_back(tile);
  }
  return list;
}

int64_t waves_of(const Problem& problem, const Team& team, const TileChoice& tile) {
  return ceil_div(tiles_of(problem, team, tile), sms_with_tiles(team));
}

bool fills_waves(const Problem& problem, const Team& team, const TileChoice& tile) {
  if (team.devices[0].sms <= kOtherSms || !has_fast_tiles(problem)) return false;
  const int64_t room = waves_of(problem, team, tile) * sms_with_tiles(team) * tile.m * tile.n;
  return 8 * problem.m * own_cols(problem, team) >= 7 * room;
}

bool leaves_sms(const Problem& problem, const Team& team, const TileChoice& tile, int64_t some) {
  const int64_t sms = team.devices[0].sms;
  const int64_t tiles = tiles_of(problem, team, tile);
  return has_fast_tiles(problem) && 4 * tiles >= 3 * sms && tiles <= sms - kOtherSms - some;
}

Config with_tile(Config config, const Problem& problem, const TileChoice& tile) {
  constexpr int64_t kGroupRows = 2048;  // that stay in the L2 cache while columns pass
  config.tile_m = tile.m;
  config.tile_n = tile.n;
  if (!multiplies(problem)) return config;
  config.cluster_m = tile.cluster_m;
  config.cluster_n = tile.cluster_n;
  config.cluster_split_k = tile.cluster_split_k;
  if (problem.m > tile.m) config.group_m = std::max<int64_t>(1, kGroupRows / tile.m);
  return config;
}

std::vector<Config> with_tiles(const Config& config, const Problem& problem, const Team& team, size_t most) {
  std::vector<Config> list;
  for (const TileChoice& tile : tiles_for(problem, team)) {
    if (list.size() < most) list.push_back(with_tile(config, problem, tile));
  }
  return list;
}

void append(std::vector<Config>& list, const std::vector<Config>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace tilewire
