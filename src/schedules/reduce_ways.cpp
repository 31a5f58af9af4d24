// Candidates of a reduce-scatter of rows, or an all-reduce, after a GEMM or alone. docs/decisions.md has the
// measurements behind the limits. Called by fused.cpp and sequential.cpp.
#include "schedules/reduce_ways.hpp"

#include <algorithm>
#include <iterator>

#include "core/ceil_div.hpp"
#include "lower/kernel_limits.hpp"
#include "schedules/copies.hpp"
#include "schedules/knobs.hpp"
#include "schedules/tile_order.hpp"
#include "schedules/tiles.hpp"

namespace tilewire {
namespace {

bool reduces_on_gpus(const Workload& work) {
  return reduces(work.problem) && !by_columns(work.problem) && on_gpus(work);
}
bool sums_tiles(const Workload& work) { return reduces_on_gpus(work) && multiplies(work.problem); }
bool scatters_tiles(const Workload& work) { return sums_tiles(work) && scatters(work.problem); }
bool all_reduces_tiles(const Workload& work) { return sums_tiles(work) && all_reduces(work.problem); }
bool all_reduces_on_gpus(const Workload& work) { return reduces_on_gpus(work) && all_reduces(work.problem); }
bool reduces_on_host(const Workload& work) { return reduces(work.problem) && !gathers(work.problem) && !on_gpus(work); }

int64_t waves(const Workload& work) { return waves_of(work, first_tile(work).front()); }

/// Whether the sums of a round are made during the next one.
bool sums_soon(const Workload& work) {
  Config config = with_tile({.schedule = "fused"}, work, first_tile(work).front());
  by_stores(work, config);
  return local_tiles_of_reduction(work.problem, work.team.num_ranks, config) == LocalTiles::last_of_round;
}

/// A CTA for sums on every SM that few rows leave free, so that the sums of the last tiles start at once. As many CTAs
/// copy what landed, where something lands. Some SMs are left for CTAs that only wait and post.
void with_summers(const Workload& work, Config& config) {
  constexpr int64_t kOthers = 2;
  const int64_t tiles = ceil_div(work.problem.n, config.tile_n);
  const bool lands = multiplies(work.problem) && all_reduces(work.problem) && config.algorithm != Algorithm::one_shot;
  const int64_t free = (work.team.devices[0].sms - tiles - kOthers) / (lands ? 2 : 1);
  config.reduce_workers = static_cast<int>(std::clamp<int64_t>(free, 16, 64));
}

/// Flags in the data, which a worker polls 16 bytes at a time where elements are short.
void with_flags(const Workload& work, Config& config) {
  by_stores(work, config);
  if (bytes_of(out_dtype_of(work.problem)) == 2) config.transport = Transport::ll;
}

/// Two rounds; where parts are summed soon, whole waves.
void in_some_rounds(const Workload& work, Config& config) {
  by_stores(work, config);
  const int64_t all = waves(work);
  config.rounds = sums_soon(work) && all % 2 != 0 && all % 3 == 0 ? 3 : 2;
}

/// Many rounds of a reduce-scatter over several peers group fewer rows: a wave of tiles then reads fewer rows of A, for
/// a few more columns of B.
void in_rounds(const Workload& work, Config& config, int rounds) {
  constexpr int kMany = 16;
  constexpr int64_t kGroupRows = 512;
  config.rounds = rounds;
  if (rounds < kMany || !scatters(work.problem) || work.team.num_ranks < 3) return;
  config.group_m = std::max<int64_t>(1, kGroupRows / config.tile_m);
}

/// Pairs of row tiles of one owner, which share B: of some rows; of more, where narrower tiles end earlier.
Tiles pair_of_owner(const Workload& work) {
  constexpr int64_t kMany = 1024;
  constexpr int64_t kMost = 4096;
  const TileChoice wide = pair_of_192_columns(work).front();
  if (shard_rows(work) <= wide.m) return {};
  if (work.problem.m < kMany) return {wide};
  TileChoice middle = middle_tile(work).front();
  middle.cluster_m = wide.cluster_m;
  return middle.n < wide.n && work.problem.m <= kMost ? Tiles{middle} : Tiles{};
}

/// Tiles of which several rows are made, so that owners can be grouped.
Tiles tiles_of_all_owners(const Workload& work) {
  Tiles tiles{{.m = 128, .n = 128}, {.m = 128, .n = 256}};
  if (shard_rows(work) >= 256) tiles.push_back({.m = 256, .n = 192});
  for (const TileChoice& tile : tiles_of_runtime_rows(work)) tiles.push_back(tile);
  std::erase_if(tiles, [&](const TileChoice& tile) { return tile.m >= work.problem.m; });
  return tiles;
}

/// SMs but for some that only wait and post.
int working_sms(const Workload& work) { return std::max(2, work.team.devices[0].sms - static_cast<int>(kOtherSms)); }

constexpr int64_t kUnit = 8;  // elements that a thread sums at once

/// Cut sums into pieces of long rows, alike and of whole units, so that each of `slices` workers has one of rows x
/// cols.
void cut_sums(Config& config, int64_t rows, int64_t cols, int64_t slices) {
  constexpr int64_t kColumns = 1024;  // of a slice
  config.tile_n = std::max(kUnit, size_of_each(cols, part_of(cols, kColumns)));
  config.tile_m = part_of(rows, std::max<int64_t>(1, slices / part_of(cols, config.tile_n)));
}

/// One call of the library stores the columns of each owner there; owners sum and broadcast.
void columns_at_owners(const Workload& work, Config& config) {
  constexpr int64_t kLeast = 4096;  // elements of a slice that are worth a worker
  config.compute = Provider::library;
  config.reduce_workers = working_sms(work);
  const int64_t cols = work.problem.n / work.team.num_ranks;
  cut_sums(config, work.problem.m, cols,
           std::min<int64_t>(config.reduce_workers, part_of(work.problem.m * cols, kLeast)));
}

bool has_even_columns(const Workload& work) {
  return all_reduces_tiles(work) && work.problem.n > 0 && work.problem.n % (kUnit * work.team.num_ranks) == 0;
}

/// Rows up to which a stream-ordered GEMM is worth a measurement. Gathers of many ranks wait for links with more rows,
/// too: slices for each peer are short for engines.
bool is_stream_ordered(const Workload& work) {
  const Problem& problem = work.problem;
  const int64_t most = gathers(problem) && work.team.num_ranks > 2 ? 4096 : 1023;
  return on_gpus(work) && multiplies(problem) && !exchanges(problem) && !by_columns(problem) && problem.m <= most;
}

void order_by_stream(const Workload& work, Config& config) {
  config.compute = Provider::library;
  const int sms = working_sms(work);
  const int64_t shard = shard_rows(work);
  if (gathers(work.problem)) {
    config.copy_workers = sms / 2;
    // NOTE: tasks are listed peer by peer: a slice of the shard for each worker has all of them send to one peer, then
    // to the next, which no other rank sends to then. Few rows go to all peers at once.
    const int64_t rows = shard >= config.copy_workers ? shard : shard * (work.team.num_ranks - 1);
    config.chunk_rows = part_of(rows, config.copy_workers);
    return;
  }
  const bool all = all_reduces(work.problem);
  cut_sums(config, all ? work.problem.m : shard, work.problem.n, all ? int64_t{sms} * work.team.num_ranks : sms);
  config.reduce_workers = sms;
  config.reduce_mode = ReduceMode::pull;
}

constexpr Way kReductionWays[] = {
    {"tiles stored at owners", kAll, 1, reduces_on_gpus, first_tile, by_stores},
    // NOTE: early: mostly the fastest where it is a choice, and without a model `auto` has only so much time.
    {"library stores columns at owners", {0, 1024}, 2, has_even_columns, nullptr, columns_at_owners},
    {"GEMV, one-shot",
     {1, kMostGemvRows + 1},
     2,
     all_reduces_tiles,
     gemv_tile,
     [](const Workload& /*work*/, Config& config) {
       config.algorithm = Algorithm::one_shot;
       config.transport = Transport::ll;
     }},
    {"rows, one-shot",
     {1, 129},
     2,
     [](const Workload& work) { return all_reduces_on_gpus(work) && !multiplies(work.problem); },
     part_of_row,
     [](const Workload& /*work*/, Config& config) {
       config.algorithm = Algorithm::one_shot;
       config.transport = Transport::ll;
     }},
    {"GEMM of the library, rows, one-shot",
     {1, 129},
     2,
     all_reduces_tiles,
     part_of_row,
     [](const Workload& /*work*/, Config& config) {
       config.compute = Provider::library;
       config.group_m = 1;
       config.algorithm = Algorithm::one_shot;
       config.transport = Transport::ll;
     }},
    {"flags in the data",
     {0, 65},
     1,
     sums_tiles,
     first_tile,
     [](const Workload& work, Config& config) {
       with_summers(work, config);
       with_flags(work, config);
     }},
    {"few rounds", {65, kAnyRows}, 2, sums_tiles, first_tile, in_some_rounds},
    {"pairs of one owner", {65, kAnyRows}, 2, sums_tiles, pair_of_owner, by_stores},
    {"4 rounds",
     {4096, kAnyRows},
     2,
     sums_tiles,
     first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       in_rounds(work, config, 4);
     }},
    {"32 rounds",
     {4096, kAnyRows},
     2,
     sums_tiles,
     first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       in_rounds(work, config, 32);
     }},
    {"8 rounds",
     {1024, 4096},
     3,
     [](const Workload& work) { return scatters_tiles(work) && sums_soon(work); },
     first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       in_rounds(work, config, 8);
     }},
    {"a round for each wave",
     {1024, 4096},
     2,
     [](const Workload& work) { return all_reduces_tiles(work) && waves(work) > 3 && waves(work) <= 8; },
     first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       in_rounds(work, config, static_cast<int>(waves(work)));
     }},
    {"all peers together",
     {129, 4097},
     3,
     sums_tiles,
     first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.group_owners = work.team.num_ranks - 1;
     }},
    {"all peers together, pairs of 192 columns",
     {129, 1024},
     3,
     sums_tiles,
     [](const Workload& /*work*/) -> Tiles { return {{.m = 128, .n = 192, .cluster_n = 2}}; },
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.group_owners = work.team.num_ranks - 1;
     }},
    // Sums of small tiles are on their way while other tiles are made.
    {"small tiles in two rounds",
     {65, kAnyRows},
     2,
     all_reduces_tiles,
     [](const Workload& /*work*/) -> Tiles { return {{.m = 128, .n = 128, .cluster_m = 2}}; },
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.rounds = 2;
     }},
    // A stage of the ring takes several waves of tiles, so that parts are here in time.
    {"ring",
     {8192, kAnyRows},
     3,
     [](const Workload& work) { return scatters_tiles(work) && work.problem.reduction == Reduction::any; },
     first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.algorithm = Algorithm::ring;
     }},
    {"ring in 16 rounds",
     {8192, kAnyRows},
     3,
     [](const Workload& work) { return scatters_tiles(work) && work.problem.reduction == Reduction::any; },
     first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.algorithm = Algorithm::ring;
       in_rounds(work, config, 16);
     }},
    {"flags in the data, a row of tiles",
     {65, 129},
     1,
     sums_tiles,
     one_row_of_tiles,
     [](const Workload& work, Config& config) {
       with_summers(work, config);
       with_flags(work, config);
     }},
    {"CTAs share K",
     {0, 513},
     1,
     [](const Workload& work) { return sums_tiles(work) && (all_reduces(work.problem) || work.problem.m > 64); },
     tiles_that_share_k,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       const bool cuts = scatters(work.problem) || work.problem.m > config.tile_m;
       if (work.team.num_ranks > 1 && cuts) config.rounds = 2;
     }},
    {"CTAs share K, flags in the data",
     {0, 129},
     1,
     [](const Workload& work) { return sums_tiles(work) && (scatters(work.problem) || work.problem.m <= 64); },
     tiles_that_share_k,
     [](const Workload& work, Config& config) {
       if (all_reduces(work.problem)) config.algorithm = Algorithm::one_shot;
       with_summers(work, config);
       with_flags(work, config);
     }},
    {"runtime rows", kAll, 1, reduces_on_gpus, tiles_of_runtime_rows, by_stores},
    {"runtime rows in two rounds", kAll, 2, reduces_on_gpus, tiles_of_runtime_rows,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.rounds = 2;
     }},
    // B is read once.
    {"all owners together",
     {129, 1024},
     2,
     sums_tiles,
     tiles_of_all_owners,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.group_owners = work.team.num_ranks;
     }},
    {"copy engines send quarters of shards", kAll, 2,
     [](const Workload& work) { return scatters_tiles(work) && has_quarters(work); }, first_tile, in_quarters_of_shard},
    {"copy engines send halves of shards", kAll, 2,
     [](const Workload& work) { return scatters_tiles(work) && has_quarters(work); }, first_tile,
     [](const Workload& work, Config& config) { in_parts_of_shard(work, config, 2); }},
    {"copy engines send shards", kAll, 1,
     [](const Workload& work) { return scatters_tiles(work) && has_no_quarters(work); }, first_tile, by_engines},
    {"copy engines send results of the library", kAll, 1, scatters_tiles, nullptr, by_engines_of_library},
    {"copy engines send results of the library, sums after", kAll, 1, scatters_tiles, nullptr,
     [](const Workload& work, Config& config) {
       by_engines_of_library(work, config);
       config.reduce_when = ReduceWhen::after;
     }},
    {"owners read", kAll, 1, reduces_on_gpus, first_tile,
     [](const Workload& /*work*/, Config& config) { config.reduce_mode = ReduceMode::pull; }},
    {"one-shot",
     {65, kAnyRows},
     1,
     all_reduces_on_gpus,
     first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.algorithm = Algorithm::one_shot;
     }},
    {"one-shot, flags in the data",
     {0, 65},
     1,
     all_reduces_on_gpus,
     first_tile,
     [](const Workload& work, Config& config) {
       config.algorithm = Algorithm::one_shot;
       if (multiplies(work.problem)) with_summers(work, config);
       with_flags(work, config);
     }},
    {"other tiles", kAll, 1, reduces_on_gpus, other_tiles, by_stores},
    {"tiles stored at owners", kAll, 1, reduces_on_host},
    {"copy lanes send", kAll, 1, reduces_on_host, nullptr, by_engines},
    {"owners read", kAll, 1, reduces_on_host, nullptr,
     [](const Workload& /*work*/, Config& config) { config.reduce_mode = ReduceMode::pull; }},
    {"one-shot", kAll, 1, [](const Workload& work) { return reduces_on_host(work) && all_reduces(work.problem); },
     nullptr, [](const Workload& /*work*/, Config& config) { config.algorithm = Algorithm::one_shot; }},
};

}  // namespace

std::vector<Way> ways_of_reductions() { return {std::begin(kReductionWays), std::end(kReductionWays)}; }

Way stream_ordered_gemm() {
  return {"stream-ordered GEMM of the library", kAll, 2, is_stream_ordered, nullptr, order_by_stream};
}

}  // namespace tilewire
