// Configs worth measuring where ranks are GPUs. What they start from was measured (docs/cuda.md).
// Called by the schedules' `candidates`.
#include "schedules/gpu_choices.hpp"

#include <algorithm>
#include <cstdint>

#include "schedules/collective.hpp"
#include "schedules/gpu_call_choices.hpp"
#include "schedules/gpu_tiles.hpp"
#include "schedules/knobs.hpp"

namespace tilewire {
namespace {

/// Columns of A in each of so many cuts: whole steps of the kernel.
int64_t columns_of_cut(const Problem& problem, int64_t cuts) {
  constexpr int64_t kStep = 64;
  return (problem.k + cuts * kStep - 1) / (cuts * kStep) * kStep;
}

Config with_tile(Config config, const Problem& problem, const TileChoice& tile) {
  constexpr int64_t kGroupRows = 2048;  // that stay in the L2 cache while columns pass
  config.tile_m = tile.m;
  config.tile_n = tile.n;
  if (problem.op == "all_reduce") return config;
  config.cluster_m = tile.cluster_m;
  config.cluster_n = tile.cluster_n;
  config.cluster_k = tile.cluster_k;
  if (problem.m > tile.m) config.group_m = std::max<int64_t>(1, kGroupRows / tile.m);
  return config;
}

/// `config` with each choice of tiles.
std::vector<Config> with_tiles(const Config& config, const Problem& problem, const Team& team, size_t most) {
  std::vector<Config> list;
  for (const TileChoice& tile : tiles_for(problem, team)) {
    if (list.size() < most) list.push_back(with_tile(config, problem, tile));
  }
  return list;
}

/// Copies by copy engines, which meet nobody at their destination.
Config paced(const char* schedule, const Team& team) {
  Config config{.schedule = schedule, .transport = Transport::copy_engine};
  if (team.num_ranks > 2) config.pacing = Pacing::lockstep;
  return config;
}

void append(std::vector<Config>& list, const std::vector<Config>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

/// Rows from which a quarter of a shard is worth a copy of its own. The rows of smaller shards are so few that a GEMM
/// that takes them shard by shard reads B too often.
constexpr int64_t kLeastQuarter = 256;

int64_t quarter_of_shard(const Problem& problem, const Team& team) {
  return (shard_of(problem.m, team.num_ranks, 0).size() + 3) / 4;
}

/// Copies by engines: of large shards a quarter at once, whose tiles are made together; nothing paces these, they need
/// no turns (docs/cuda.md).
std::vector<Config> quarter_choices(const Problem& problem, const Team& team) {
  const int64_t quarter = quarter_of_shard(problem, team);
  Config config = paced("fused", team);
  if (quarter < kLeastQuarter) return with_tiles(config, problem, team, 1);
  config.chunk_rows = quarter;
  config.pacing = Pacing::unpaced;
  std::vector<Config> list = with_tiles(config, problem, team, 1);
  for (Config& with : list) with.group_m = std::max<int64_t>(1, std::min(with.group_m, quarter / with.tile_m));
  return list;
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
std::vector<Config> turn_choices(const Problem& problem, const Team& team) {
  constexpr int64_t kSomeOfShard = 512;
  const TileChoice pair{.m = 128, .n = 192, .cluster_m = 2};
  const TileChoice large{.m = 256, .n = 192, .cluster_n = 2};
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  if (team.num_ranks == 1 || problem.m <= pair.m) return {};
  if (problem.m < kMany && team.num_ranks == 2) return {};  // two owners are all
  const TileChoice& tile = problem.m < kMany || shard <= kFewOfShard ? pair : large;
  Config config = with_tile(paced("fused", team), problem, tile);
  if (problem.m < kMany) {
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
  const bool few = problem.m <= kFew;
  const int64_t rows = few ? shard * (team.num_ranks - 1) : shard;
  Config config{.schedule = "fused"};
  config.chunk_rows = part_of(rows, kPieces);
  std::vector<Config> list = with_tiles(config, problem, team, 1);
  // Smaller tiles end sooner behind the last rows.
  if (team.num_ranks > 2 && problem.m >= kMany && problem.m <= kMostGathered)
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
  const int pieces = twice ? 2 * kPieces : kPieces;
  Config config{.schedule = "fused"};
  config.chunk_rows = part_of(rows, pieces);
  if (twice) config.copy_workers = pieces;
  return config;
}

/// At most a row of tiles for each owner: all of them together, so that pairs share B, behind few copies, as tiles take
/// most SMs and each copy a worker.
std::vector<Config> owners_at_once(const Problem& problem, const Team& team) {
  constexpr int64_t kCopies = 8;
  const TileChoice pair{.m = 128, .n = 256, .cluster_m = 2};
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  if (team.num_ranks == 1 || problem.m <= kSome || shard > pair.m) return {};
  Config config = with_tile({.schedule = "fused"}, problem, pair);
  config.group_owners = team.num_ranks;
  config.chunk_rows = (shard * (team.num_ranks - 1) + kCopies - 1) / kCopies;
  return {config};
}

/// Few or some rows: tiles whose K several CTAs share, behind copies by workers and by engines.
std::vector<Config> parts_choices(const Problem& problem, const Team& team) {
  if (problem.m > kMiddle) return {};
  const Config workers = in_pieces(problem, team);
  const TileChoice tile = row_of_tiles(problem, team);
  std::vector<Config> list;
  for (const TileChoice& each : in_parts_of_k(problem, team, tile)) {
    list.push_back(with_tile(workers, problem, each));
    list.push_back(with_tile(paced("fused", team), problem, each));
  }
  return list;
}

/// Tiles of a gather whose rows are free.
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
    if (problem.m < kMany) list.push_back(with_tile(in_pieces(problem, team), problem, tile));
  }
  return list;
}

/// Few rows a rank: own tiles would read all of B long before the others' do, which costs more than to begin when a
/// quarter of everybody's columns is here.
std::vector<Config> in_step_choices(const Problem& problem, const Team& team) {
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  const int64_t quarter = columns_of_cut(problem, 4);
  if (team.num_ranks == 1 || problem.m <= kSome || shard > kFewOfShard || quarter >= problem.k) return {};
  const auto in_step = [&](Config config, const TileChoice& tile) {
    config.order = Order::in_step;
    config.chunk_cols = quarter;
    config = with_tile(config, problem, tile);
    // All row tiles together: those left over would walk all of B once more.
    if (problem.m > tile.m) config.group_m = std::max(config.group_m, team.num_ranks * ((shard + tile.m - 1) / tile.m));
    return config;
  };
  const Config engines{.schedule = "fused", .transport = Transport::copy_engine};
  std::vector<Config> list{in_step(engines, middle_tile(problem, team)), in_step(engines, {.m = 128, .n = 256})};
  for (const TileChoice& tile : free_tiles_of_gather(problem, team))
    list.push_back(in_step(in_pieces(problem, team), tile));
  return list;
}

std::vector<Config> gather_choices(const Problem& problem, const Team& team) {
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  const Config engines = paced("fused", team);
  Config library = engines;
  library.compute = Provider::library;
  std::vector<Config> list = with_tiles(engines, problem, team, 1);
  append(list, turn_choices(problem, team));
  if (quarter_of_shard(problem, team) >= kLeastQuarter) {
    append(list, quarter_choices(problem, team));
  } else if (team.num_ranks > 1 && problem.m >= kMany) {
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
  const std::vector<Config> others = with_tiles(engines, problem, team, 3);
  list.insert(list.end(), others.begin() + 1, others.end());
  return list;
}

/// `config` with a CTA for sums on every SM that few rows leave free, so that those of the last tiles come at once. As
/// many copy what landed, where something lands. Some are left for CTAs that only wait and post.
Config with_summers(Config config, const Problem& problem, const Team& team) {
  constexpr int64_t kOthers = 2;
  const int64_t tiles = (problem.n + config.tile_n - 1) / config.tile_n;
  const bool lands = problem.op == "gemm_all_reduce" && config.algorithm != Algorithm::one_shot;
  const int64_t free = (team.devices[0].sms - tiles - kOthers) / (lands ? 2 : 1);
  config.reduce_workers = static_cast<int>(std::clamp<int64_t>(free, 16, 64));
  return config;
}

/// Few or some rows: tiles whose K several CTAs share; and flags in the data, which some rows may have, too. An
/// all-reduce of few rows in one shot; of a row of tiles in one round.
std::vector<Config> reduce_parts_choices(const Problem& problem, const Team& team, Transport at_once) {
  if (problem.m > kMiddle || problem.op == "all_reduce") return {};
  const bool scatters = problem.op == "gemm_reduce_scatter";
  const TileChoice tile = row_of_tiles(problem, team);
  Config flags = with_tile({.schedule = "fused", .transport = at_once}, problem, tile);
  if (!scatters && problem.m <= kFew) flags.algorithm = Algorithm::one_shot;
  flags = with_summers(flags, problem, team);
  Config stores{.schedule = "fused", .transport = Transport::tma};
  if (team.num_ranks > 1 && (scatters || problem.m > tile.m)) stores.rounds = 2;
  std::vector<Config> list;
  if (problem.m > kFew && problem.m <= kSome) list.push_back(flags);
  for (const TileChoice& each : in_parts_of_k(problem, team, tile)) {
    if (problem.m > kFew || !scatters) list.push_back(with_tile(stores, problem, each));
    flags.cluster_k = each.cluster_k;
    if (problem.m <= (scatters ? kSome : kFew)) list.push_back(flags);
  }
  return list;
}

/// Tiles whose rows are free, in one turn and in two.
std::vector<Config> reduce_free_choices(const Config& stores, const Problem& problem, const Team& team) {
  std::vector<Config> list;
  for (const TileChoice& tile : free_tiles(problem, team)) {
    list.push_back(with_tile(stores, problem, tile));
    if (team.num_ranks == 1) continue;
    list.push_back(list.back());
    list.back().rounds = 2;
  }
  return list;
}

/// Some rows: tiles of all owners together, so that B is read once, of large B too.
std::vector<Config> reduce_together_choices(const Config& stores, const Problem& problem, const Team& team) {
  if (team.num_ranks == 1 || problem.m <= kSome || problem.m >= kMany) return {};
  const TileChoice large{.m = 256, .n = 192};
  std::vector<TileChoice> tiles{{.m = 128, .n = 128}, {.m = 128, .n = 256}};
  if (shard_of(problem.m, team.num_ranks, 0).size() >= large.m) tiles.push_back(large);
  for (const TileChoice& tile : free_tiles(problem, team)) tiles.push_back(tile);
  std::vector<Config> list;
  for (const TileChoice& tile : tiles) {
    if (tile.m >= problem.m) continue;  // one row of tiles is together anyway
    list.push_back(with_tile(stores, problem, tile));
    list.back().group_owners = team.num_ranks;
  }
  return list;
}

/// What copy engines send of a reduce-scatter: quarters of shards, and what calls of the library make.
std::vector<Config> sent_choices(const Problem& problem, const Team& team) {
  std::vector<Config> list = quarter_choices(problem, team);
  Config library = paced("fused", team);
  library.compute = Provider::library;
  list.push_back(library);
  library.reduce_when = ReduceWhen::after;
  list.push_back(library);
  return list;
}

/// Many rows, in any order of summing: each tile adds its part to what the rank before has sent.
std::vector<Config> ring_choices(const Config& stores, const Problem& problem, const Team& team) {
  constexpr int64_t kLeast = 8192;  // rows: a stage takes several turns of tiles, so that parts are here in time
  if (problem.op != "gemm_reduce_scatter" || problem.reduction != Reduction::any) return {};
  if (team.num_ranks < 3 || problem.m < kLeast) return {};
  std::vector<Config> list;
  for (const int rounds : {1, 16}) {
    Config ring = stores;
    ring.algorithm = Algorithm::ring;
    ring.rounds = rounds;
    append(list, with_tiles(ring, problem, team, 1));
  }
  return list;
}

std::vector<Config> reduce_choices(const Problem& problem, const Team& team) {
  const bool scatters = problem.op == "gemm_reduce_scatter";
  constexpr int64_t kMost = 4096;  // rows, where owners have few
  Config stores{.schedule = "fused"};
  if (problem.op != "all_reduce") stores.transport = Transport::tma;
  // Few rows: flags in the data, which are looked at 16 bytes at a time where elements are short.
  const Transport at_once = bytes_of(out_dtype_of(problem)) == 2 ? Transport::ll : stores.transport;
  std::vector<Config> list = with_tiles(stores, problem, team, 1);
  // NOTE: early: it is mostly the fastest where it is a choice, and the tuner has only so much time.
  append(list, columns_at_owners(problem, team));
  if (problem.op != "all_reduce" && problem.m <= kFew) {
    // What comes after the last tiles is done at once, as soon as it is there.
    list.push_back(with_summers(list.front(), problem, team));
    list.back().transport = at_once;
  } else if (problem.op != "all_reduce" && team.num_ranks > 1) {
    Config turns = stores;
    turns.rounds = 2;
    append(list, with_tiles(turns, problem, team, 1));
    const TileChoice pair{.m = 128, .n = 192, .cluster_m = 2};  // of row tiles of one owner
    if (problem.m < kMany && shard_of(problem.m, team.num_ranks, 0).size() > pair.m)
      list.push_back(with_tile(stores, problem, pair));
    for (const int rounds : {4, 32}) {
      turns.rounds = rounds;
      if (problem.m >= kMost) append(list, with_tiles(turns, problem, team, 1));
    }
    turns.rounds = 1;
    turns.group_owners = std::max(1, team.num_ranks - 1);
    if (problem.m > 2 * kFew && problem.m <= kMost && team.num_ranks > 2) {
      append(list, with_tiles(turns, problem, team, 1));
      if (problem.m < kMany) list.push_back(with_tile(turns, problem, {.m = 128, .n = 192, .cluster_n = 2}));
    }
  }
  if (problem.op == "gemm_all_reduce" && problem.m > kFew && team.num_ranks > 1) {
    // Small tiles, whose sums are on their way while others are made.
    list.push_back(with_tile(stores, problem, {.m = 128, .n = 128, .cluster_m = 2}));
    list.back().rounds = 2;
  }
  append(list, ring_choices(stores, problem, team));
  append(list, reduce_parts_choices(problem, team, at_once));
  append(list, reduce_free_choices(stores, problem, team));
  if (problem.op != "all_reduce") append(list, reduce_together_choices(stores, problem, team));
  if (scatters) append(list, sent_choices(problem, team));
  append(list, with_tiles({.schedule = "fused", .reduction = ReduceMode::pull}, problem, team, 1));
  Config one_shot = stores;
  one_shot.algorithm = Algorithm::one_shot;
  if (!scatters) append(list, with_tiles(one_shot, problem, team, 1));
  if (!scatters && problem.m <= kFew) {
    if (problem.op == "gemm_all_reduce") list.back() = with_summers(list.back(), problem, team);
    list.back().transport = at_once;
  }
  const std::vector<Config> others = with_tiles(stores, problem, team, 3);
  list.insert(list.end(), others.begin() + 1, others.end());
  return list;
}

}  // namespace

bool on_gpus(const Team& team) {
  return !team.devices.empty() &&
         std::ranges::all_of(team.devices, [](const Device& device) { return device.sms > 0; });
}

std::vector<Config> sequential_choices(const Problem& problem, const Team& team) {
  Config config{.schedule = "sequential"};
  if (team.num_ranks > 2) config.pacing = Pacing::lockstep;
  std::vector<Config> list = with_tiles(config, problem, team, 1);
  config.compute = problem.op == "all_reduce" ? Provider::tiles : Provider::library;
  if (config.compute == Provider::library) list.push_back(config);
  append(list, calls_in_line(problem, team));
  config.collective = Provider::library;
  config.pacing = Pacing::unpaced;
  if (!refuses_collective(problem, team, config)) list.push_back(config);
  return list;
}

std::vector<Config> fused_choices(const Problem& problem, const Team& team) {
  return gathers(problem) ? gather_choices(problem, team) : reduce_choices(problem, team);
}

std::vector<Config> two_stream_choices(const Problem& problem, const Team& team) {
  return with_tiles({.schedule = "two_stream"}, problem, team, 2);
}

}  // namespace tilewire
