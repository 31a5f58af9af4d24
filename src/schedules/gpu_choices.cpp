// Configs worth measuring where ranks are GPUs. What they start from was measured (docs/decisions.md).
// Called by the schedules' `candidates`.
#include "schedules/gpu_choices.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/ceil_div.hpp"
#include "schedules/collective.hpp"
#include "schedules/column_gather.hpp"
#include "schedules/gpu_call_choices.hpp"
#include "schedules/gpu_copies.hpp"
#include "schedules/gpu_gather_choices.hpp"
#include "schedules/gpu_tiles.hpp"
#include "schedules/knobs.hpp"
#include "schedules/tile_order.hpp"

namespace tilewire {
namespace {

/// `config` with a CTA for sums on every SM that few rows leave free, so that those of the last tiles come at once. As
/// many copy what landed, where something lands. Some are left for CTAs that only wait and post.
Config with_summers(Config config, const Problem& problem, const Team& team) {
  constexpr int64_t kOthers = 2;
  const int64_t tiles = ceil_div(problem.n, config.tile_n);
  const bool lands = multiplies(problem) && all_reduces(problem) && config.algorithm != Algorithm::one_shot;
  const int64_t free = (team.devices[0].sms - tiles - kOthers) / (lands ? 2 : 1);
  config.reduce_workers = static_cast<int>(std::clamp<int64_t>(free, 16, 64));
  return config;
}

/// Whether parts that are made in a turn are summed during the next one.
bool sums_soon(const Problem& problem, const Team& team) {
  const Config config =
      with_tile({.schedule = "fused", .transport = Transport::tma}, problem, tiles_for(problem, team).front());
  return local_tiles_of_reduction(problem, team.num_ranks, config) == LocalTiles::last_of_round;
}

/// Two rounds; or, where parts are summed soon, whole turns.
int some_rounds(const Problem& problem, const Team& team) {
  const int64_t turns = waves_of(problem, team, tiles_for(problem, team).front());
  return sums_soon(problem, team) && turns % 2 != 0 && turns % 3 == 0 ? 3 : 2;
}

/// More rounds than that: of many rows; of an all-reduce of fewer as many as turns; of a reduce-scatter of fewer over
/// several peers, where parts are summed soon.
std::vector<int> many_rounds(const Problem& problem, const Team& team) {
  constexpr int64_t kLeast = 4096;
  constexpr int kMostWaves = 8;
  if (problem.m >= kLeast) return {4, 32};
  if (problem.m < kM1024) return {};
  if (scatters(problem)) return team.num_ranks > 2 && sums_soon(problem, team) ? std::vector{8} : std::vector<int>{};
  const auto turns = static_cast<int>(waves_of(problem, team, tiles_for(problem, team).front()));
  return turns > 3 && turns <= kMostWaves ? std::vector{turns} : std::vector<int>{};
}

/// `config` in so many rounds. Many of a reduce-scatter over several peers walk fewer rows together: a wave of tiles
/// then reads fewer rows of A, for a few more columns of B.
Config with_rounds(Config config, const Problem& problem, const Team& team, int rounds) {
  constexpr int kManyRounds = 16;
  constexpr int64_t kFewerRows = 512;  // than with_tile has together
  config.rounds = rounds;
  if (rounds < kManyRounds || !scatters(problem) || team.num_ranks < 3) return config;
  config.group_m = std::max<int64_t>(1, kFewerRows / config.tile_m);
  return config;
}

/// Pairs of row tiles of one owner, which share B: of some rows; of more, where narrower tiles end earlier.
std::optional<TileChoice> pair_of_owner(const Problem& problem, const Team& team) {
  constexpr int64_t kMost = 4096;
  const TileChoice wide{.m = 128, .n = 192, .cluster_m = 2};
  if (shard_of(problem.m, team.num_ranks, 0).size() <= wide.m) return std::nullopt;
  if (problem.m < kM1024) return wide;
  TileChoice middle = middle_tile(problem, team);
  middle.cluster_m = wide.cluster_m;
  return middle.n < wide.n && problem.m <= kMost ? std::optional(middle) : std::nullopt;
}

/// Few or some rows: tiles whose K several CTAs share; and flags in the data, which some rows may have, too. An
/// all-reduce of few rows in one shot; of a row of tiles in one round.
std::vector<Config> reduce_parts_choices(const Problem& problem, const Team& team, Transport at_once) {
  if (problem.m > kM512 || !multiplies(problem)) return {};
  const TileChoice tile = row_of_tiles(problem, team);
  Config flags = with_tile({.schedule = "fused", .transport = at_once}, problem, tile);
  if (!scatters(problem) && problem.m <= kM64) flags.algorithm = Algorithm::one_shot;
  flags = with_summers(flags, problem, team);
  Config stores{.schedule = "fused", .transport = Transport::tma};
  if (team.num_ranks > 1 && (scatters(problem) || problem.m > tile.m)) stores.rounds = 2;
  std::vector<Config> list;
  if (problem.m > kM64 && problem.m <= kM128) list.push_back(flags);
  for (const TileChoice& each : in_parts_of_k(problem, team, tile)) {
    if (problem.m > kM64 || !scatters(problem)) list.push_back(with_tile(stores, problem, each));
    flags.cluster_split_k = each.cluster_split_k;
    if (problem.m <= (scatters(problem) ? kM128 : kM64)) list.push_back(flags);
  }
  return list;
}

/// Tiles whose rows are a runtime number, in one turn and in two.
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
  if (team.num_ranks == 1 || problem.m <= kM128 || problem.m >= kM1024) return {};
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

/// What copy engines send of a reduce-scatter: quarters and halves of shards, and what calls of the library make.
std::vector<Config> sent_choices(const Problem& problem, const Team& team) {
  const TileChoice first = tiles_for(problem, team).front();
  std::vector<Config> list;
  if (has_quarters(problem, team)) {
    list.push_back(in_groups_of_shard(problem, team, first, 4));
    list.push_back(in_parts_of_shard(problem, team, first, 2));
  } else {
    list.push_back(with_tile(paced("fused", team), problem, first));
  }
  Config library = paced("fused", team);
  library.compute = Provider::library;
  list.push_back(library);
  library.reduce_when = ReduceWhen::after;
  list.push_back(library);
  return list;
}

/// Many rows, in any order of summing: each tile adds its part to what the rank before has sent.
std::vector<Config> ring_choices(const Config& first, const Problem& problem, const Team& team) {
  constexpr int64_t kLeast = 8192;  // rows: a stage takes several waves of tiles, so that parts are here in time
  if (!scatters(problem) || problem.reduction != Reduction::any) return {};
  if (team.num_ranks < 3 || problem.m < kLeast) return {};
  Config ring = first;
  ring.algorithm = Algorithm::ring;
  return {ring, with_rounds(ring, problem, team, 16)};
}

std::vector<Config> reduce_choices(const Problem& problem, const Team& team) {
  constexpr int64_t kMost = 4096;  // rows, where owners have few
  Config stores{.schedule = "fused"};
  if (multiplies(problem)) stores.transport = Transport::tma;
  // Few rows: flags in the data, which are looked at 16 bytes at a time where elements are short.
  const Transport at_once = bytes_of(out_dtype_of(problem)) == 2 ? Transport::ll : stores.transport;
  std::vector<Config> list = with_tiles(stores, problem, team, 1);
  // NOTE: early: it is mostly the fastest where it is a choice, and the tuner has only so much time.
  append(list, columns_at_owners(problem, team));
  if (multiplies(problem) && problem.m <= kM64) {
    // What comes after the last tiles is done at once, as soon as it is there.
    list.push_back(with_summers(list.front(), problem, team));
    list.back().transport = at_once;
  } else if (multiplies(problem) && team.num_ranks > 1) {
    list.push_back(with_rounds(list.front(), problem, team, some_rounds(problem, team)));
    if (const auto pair = pair_of_owner(problem, team)) list.push_back(with_tile(stores, problem, *pair));
    for (const int rounds : many_rounds(problem, team)) {
      list.push_back(with_rounds(list.front(), problem, team, rounds));
    }
    if (problem.m > 2 * kM64 && problem.m <= kMost && team.num_ranks > 2) {
      list.push_back(list.front());
      list.back().group_owners = team.num_ranks - 1;
      if (problem.m < kM1024) {
        list.push_back(with_tile(list.back(), problem, {.m = 128, .n = 192, .cluster_n = 2}));
      }
    }
  }
  if (multiplies(problem) && all_reduces(problem) && problem.m > kM64 && team.num_ranks > 1) {
    // Small tiles, whose sums are on their way while others are made.
    list.push_back(with_tile(stores, problem, {.m = 128, .n = 128, .cluster_m = 2}));
    list.back().rounds = 2;
  }
  append(list, ring_choices(list.front(), problem, team));
  append(list, reduce_parts_choices(problem, team, at_once));
  append(list, reduce_free_choices(stores, problem, team));
  if (multiplies(problem)) append(list, reduce_together_choices(stores, problem, team));
  if (scatters(problem)) append(list, sent_choices(problem, team));
  append(list, with_tiles({.schedule = "fused", .reduce_mode = ReduceMode::pull}, problem, team, 1));
  Config one_shot = stores;
  one_shot.algorithm = Algorithm::one_shot;
  if (!scatters(problem)) append(list, with_tiles(one_shot, problem, team, 1));
  if (!scatters(problem) && problem.m <= kM64) {
    if (multiplies(problem) && all_reduces(problem)) list.back() = with_summers(list.back(), problem, team);
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
  if (team.num_ranks > 2 && !gathers_columns(problem)) config.pacing = Pacing::lockstep;
  std::vector<Config> list = with_tiles(config, made_by_a_rank(problem, team), team, 1);
  config.compute = multiplies(problem) ? Provider::library : Provider::tiles;
  if (config.compute == Provider::library) list.push_back(config);
  append(list, stream_ordered_gemm(problem, team));
  config.collective = Provider::library;
  config.pacing = Pacing::unpaced;
  // NOTE: GPUs call no all-to-all of the library (refusals.cpp).
  if (!exchanges(problem) && !refuses_collective(problem, team, config)) list.push_back(config);
  return list;
}

std::vector<Config> fused_choices(const Problem& problem, const Team& team) {
  if (by_columns(problem)) return column_choices(problem, team);
  return gathers(problem) ? gather_choices(problem, team) : reduce_choices(problem, team);
}

std::vector<Config> two_stream_choices(const Problem& problem, const Team& team) {
  return with_tiles({.schedule = "two_stream"}, problem, team, 2);
}

}  // namespace tilewire
