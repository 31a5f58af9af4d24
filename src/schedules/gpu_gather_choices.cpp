// Configs of a gather that are worth measuring where ranks are GPUs. What they start from was measured
// (docs/decisions.md). Called by gpu_choices.cpp.
#include "schedules/gpu_gather_choices.hpp"

#include <algorithm>

#include "core/ceil_div.hpp"
#include "schedules/gpu_copies.hpp"

namespace tilewire {
namespace {

/// Columns of A in each of so many cuts: whole steps of the kernel.
int64_t columns_of_cut(const Problem& problem, int64_t cuts) {
  constexpr int64_t kStep = 64;
  return ceil_div(problem.k, cuts * kStep) * kStep;
}

/// Walk the row tiles of a shard together. Pairs that share B need two of them.
void walk_shards(Config& config, int64_t shard) {
  config.group_m = std::max<int64_t>(1, shard / config.tile_m);
  if (config.group_m == 1 && config.cluster_m == 2) std::swap(config.cluster_m, config.cluster_n);
}

/// Rows of a shard up to which they are so few that how often B is read counts.
constexpr int64_t kFewOfShard = 256;

/// Other tiles and other turns for a gather by engines. Few rows a rank: own tiles that keep all SMs busy until the
/// first shard is here, then a few columns of every peer, so that B is read less often; with fewer rows still, two
/// owners together. Many rows: the tile that moves the fewest bytes.
std::vector<Config> wave_choices(const Problem& problem, const Team& team) {
  constexpr int64_t kSomeOfShard = 512;
  const TileChoice pair{.m = 128, .n = 192, .cluster_m = 2};
  const TileChoice large{.m = 256, .n = 192, .cluster_n = 2};
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  if (team.num_ranks == 1 || problem.m <= pair.m) return {};
  if (problem.m < kM1024 && team.num_ranks == 2) return {};  // two owners are all
  const TileChoice& tile = problem.m < kM1024 || shard <= kFewOfShard ? pair : large;
  Config config = with_tile(paced("fused", team), problem, tile);
  if (problem.m < kM1024) {
    config.group_owners = 2;
  } else if (shard <= kSomeOfShard) {
    config.rounds = shard <= kFewOfShard ? 3 : 4;
    walk_shards(config, shard);
  }
  return {config};
}

/// Pieces of a shard that workers copy, one each; behind tiles of few or some rows, for all peers together.
constexpr int kPieces = 16;

/// Copies by workers. Few rows: for all peers together, half of the columns first.
std::vector<Config> worker_choices(const Problem& problem, const Team& team) {
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  const bool few = problem.m <= kM64;
  const int64_t rows = few ? shard * (team.num_ranks - 1) : shard;
  Config config{.schedule = "fused"};
  config.chunk_rows = part_of(rows, kPieces);
  std::vector<Config> list = with_tiles(config, problem, team, 1);
  // Smaller tiles end sooner behind the last rows.
  if (team.num_ranks > 2 && problem.m >= kM1024 && problem.m <= kMostGathered)
    list.push_back(with_tile(config, problem, middle_tile(problem, team)));
  if (!few || team.num_ranks == 1) return list;
  config.copy_workers = kPieces;
  config.chunk_cols = columns_of_cut(problem, 2);
  if (config.chunk_cols < problem.k) append(list, with_tiles(config, problem, team, 1));
  return list;
}

/// Copies by workers of some rows: kPieces for all peers together; of 33 to 64 rows twice as many, each by a worker.
Config in_pieces(const Problem& problem, const Team& team) {
  const int64_t rows = shard_of(problem.m, team.num_ranks, 0).size() * std::max(1, team.num_ranks - 1);
  const bool twice = rows > 2 * kPieces && rows <= 4 * kPieces;
  const int slices = twice ? 2 * kPieces : kPieces;
  Config config{.schedule = "fused"};
  config.chunk_rows = part_of(rows, slices);
  if (twice) config.copy_workers = slices;
  return config;
}

/// At most a row of tiles for each owner: all of them together, so that pairs share B, behind few copies, as tiles take
/// most SMs and each copy a worker.
std::vector<Config> owners_at_once(const Problem& problem, const Team& team) {
  constexpr int64_t kCopies = 8;
  const TileChoice pair{.m = 128, .n = 256, .cluster_m = 2};
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  if (team.num_ranks == 1 || problem.m <= kM128 || shard > pair.m) return {};
  Config config = with_tile({.schedule = "fused"}, problem, pair);
  config.group_owners = team.num_ranks;
  config.chunk_rows = part_of(shard * (team.num_ranks - 1), kCopies);
  return {config};
}

/// Few or some rows: tiles whose K several CTAs share, behind copies by workers and by engines.
std::vector<Config> parts_choices(const Problem& problem, const Team& team) {
  if (problem.m > kM512) return {};
  const Config workers = in_pieces(problem, team);
  const TileChoice tile = row_of_tiles(problem, team);
  std::vector<Config> list;
  for (const TileChoice& each : in_parts_of_k(problem, team, tile)) {
    list.push_back(with_tile(workers, problem, each));
    list.push_back(with_tile(paced("fused", team), problem, each));
  }
  return list;
}

/// Tiles of a gather whose rows are a runtime number.
std::vector<TileChoice> free_tiles_of_gather(const Problem& problem, const Team& team) {
  std::vector<TileChoice> tiles = free_tiles(problem, team);
  const auto owners = tile_of_owner(problem, team);
  if (owners && std::ranges::find(tiles, owners->m, &TileChoice::m) == tiles.end()) tiles.push_back(*owners);
  return tiles;
}

/// These, behind copies by engines; where rows are not many, by workers, too.
std::vector<Config> free_choices(const Problem& problem, const Team& team) {
  std::vector<Config> list;
  for (const TileChoice& tile : free_tiles_of_gather(problem, team)) {
    list.push_back(with_tile(paced("fused", team), problem, tile));
    if (problem.m < kM1024) list.push_back(with_tile(in_pieces(problem, team), problem, tile));
  }
  return list;
}

/// Workers on the SMs that have no tile, but for one that waits and posts; and rows that these send, of all peers, up
/// to which tiles wait for them less than for engines.
constexpr int kFewWorkers = kOtherSms - 1;
constexpr int64_t kMostSent = 512;

/// Tiles in step, behind cuts of so many columns; each of so many workers copies a slice of a cut.
Config in_step_by(int workers, int64_t cols, const Problem& problem, const Team& team, const TileChoice& tile) {
  Config config = with_tile({.schedule = "fused", .tile_order = TileOrder::in_step}, problem, tile);
  config.copy_workers = workers;
  config.chunk_rows = part_of(shard_of(problem.m, team.num_ranks, 0).size(), workers);
  config.chunk_cols = cols;
  return config;
}

/// The largest tiles in step, where these keep all SMs busy: they begin with a small cut of the columns, and the few
/// SMs that are left bring one after the other to all peers, faster than tiles use them; or, where that is more than
/// they send in time, to one peer first, whose rows and one's own are a wave of tiles, then to two.
std::vector<Config> few_workers_choices(const Problem& problem, const Team& team) {
  const TileChoice large{.m = 256, .n = 192};
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  const bool all = shard * (team.num_ranks - 1) <= kMostSent;
  Problem together = problem;
  if (!all) together.m = 2 * shard;
  // Shards have tiles of their own, or all are together.
  const bool apart = team.num_ranks * ceil_div(shard, large.m) <= ceil_div(problem.m, large.m);
  if ((!all && !apart) || together.m <= large.m || !fills_waves(together, team, large)) return {};
  std::vector<Config> list;
  for (const int64_t cuts : {8, 12}) {
    Config config = in_step_by(kFewWorkers, columns_of_cut(problem, cuts), problem, team, large);
    config.group_owners = all ? 1 : 2;
    if (list.empty() || list.back() != config) list.push_back(config);
  }
  return list;
}

/// One wave of tiles on most SMs, in step behind quarters of the columns, and workers on kPieces of the others.
std::vector<Config> workers_beside_a_wave(const Problem& problem, const Team& team) {
  const int64_t quarter = columns_of_cut(problem, 4);
  if (team.num_ranks == 1 || problem.m <= kM128 || quarter >= problem.k) return {};
  for (const int64_t cols : {256, 192, 160, 128}) {
    const TileChoice tile{.m = 128, .n = cols};
    if (!leaves_sms(problem, team, tile, kPieces)) continue;
    const Config config = in_step_by(kPieces, quarter, problem, team, tile);
    // All row tiles are grouped.
    return problem.m <= config.group_m * config.tile_m ? std::vector{config} : std::vector<Config>{};
  }
  return {};
}

/// Few rows a rank: own tiles would read all of B long before the others' do, which costs more than to begin when a
/// quarter of everybody's columns is here.
std::vector<Config> in_step_choices(const Problem& problem, const Team& team) {
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  const int64_t quarter = columns_of_cut(problem, 4);
  if (team.num_ranks == 1 || problem.m <= kM128 || shard > kFewOfShard || quarter >= problem.k) return {};
  const auto in_step = [&](Config config, const TileChoice& tile) {
    config.tile_order = TileOrder::in_step;
    config.chunk_cols = quarter;
    config = with_tile(config, problem, tile);
    // All row tiles together: those left over would walk all of B once more.
    if (problem.m > tile.m) config.group_m = std::max(config.group_m, team.num_ranks * ceil_div(shard, tile.m));
    return config;
  };
  std::vector<Config> list{in_step(unpaced(), middle_tile(problem, team)), in_step(unpaced(), {.m = 128, .n = 256})};
  for (const TileChoice& tile : free_tiles_of_gather(problem, team))
    list.push_back(in_step(in_pieces(problem, team), tile));
  append(list, few_workers_choices(problem, team));
  return list;
}

}  // namespace

std::vector<Config> gather_choices(const Problem& problem, const Team& team) {
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  const Config engines = paced("fused", team);
  Config library = engines;
  library.compute = Provider::library;
  std::vector<Config> list = with_tiles(engines, problem, team, 1);
  append(list, wave_choices(problem, team));
  if (has_quarters(problem, team)) {
    const TileChoice first = tiles_for(problem, team).front();
    list.push_back(in_groups_of_shard(problem, team, first, 4));
    list.push_back(in_groups_of_shard(problem, team, first, 2));
    // All rows of a peer at once, halves of the columns: its tiles begin with the first one. In small groups those that
    // are left of an owner's, beside the next one's, still share their operands.
    Config columns = with_tile(unpaced(), problem, {.m = first.m, .n = first.n});
    columns.group_m = std::max<int64_t>(1, columns.group_m / 2);
    columns.chunk_cols = columns_of_cut(problem, 2);
    if (columns.chunk_cols < problem.k) list.push_back(columns);
  } else if (team.num_ranks > 1 && problem.m >= kM1024) {
    Config rounds = list.front();
    rounds.rounds = 4;
    walk_shards(rounds, shard);
    list.push_back(rounds);
  }
  list.push_back(library);
  append(list, worker_choices(problem, team));
  append(list, parts_choices(problem, team));
  append(list, owners_at_once(problem, team));
  append(list, free_choices(problem, team));
  append(list, in_step_choices(problem, team));
  append(list, workers_beside_a_wave(problem, team));
  const std::vector<Config> others = with_tiles(engines, problem, team, 3);
  list.insert(list.end(), others.begin() + 1, others.end());
  return list;
}

}  // namespace tilewire
