// Candidates of an all-gather of rows before a GEMM. docs/decisions.md has the measurements behind the limits.
// Called by fused.cpp.
#include "schedules/gather_ways.hpp"

#include <algorithm>
#include <iterator>

#include "core/ceil_div.hpp"
#include "lower/kernel_limits.hpp"
#include "schedules/copies.hpp"
#include "schedules/knobs.hpp"
#include "schedules/tiles.hpp"

namespace tilewire {
namespace {

/// Pieces of a shard that workers copy, one each; of few or some rows, of the shards of all peers together.
constexpr int64_t kPieces = 16;
/// Workers on the SMs that have no tile, but for one that waits and posts.
constexpr int kFewWorkers = kOtherSms - 1;

bool gathers_rows_on_gpus(const Workload& work) { return gathers_rows(work.problem) && on_gpus(work); }

/// Columns of A in each of so many cuts: whole steps of the kernel.
int64_t columns_of_cut(const Workload& work, int64_t cuts) {
  constexpr int64_t kStep = 64;
  return ceil_div(work.problem.k, cuts * kStep) * kStep;
}

/// Make the row tiles of a shard a group. Pairs that share B need two row tiles.
void group_shards(const Workload& work, Config& config) {
  config.group_m = std::max<int64_t>(1, shard_rows(work) / config.tile_m);
  if (config.group_m == 1 && config.cluster_m == 2) std::swap(config.cluster_m, config.cluster_n);
}

void in_rounds(const Workload& work, Config& config, int rounds) {
  by_engines(work, config);
  config.rounds = rounds;
  group_shards(work, config);
}

/// All rows of a peer at once, halves of the columns: its tiles begin with the first half. In small groups the last
/// tiles of one owner, beside the first ones of the next, still share their operands.
void in_halves_of_columns(const Workload& work, Config& config) {
  config.transport = Transport::copy_engine;
  config.group_m = std::max<int64_t>(1, config.group_m / 2);
  config.chunk_cols = columns_of_cut(work, 2);
}

/// Workers copy pieces of a shard; of few rows, pieces of the shards of all peers.
void by_workers(const Workload& work, Config& config) {
  constexpr int64_t kFewRows = 64;
  const int64_t shards = work.problem.m <= kFewRows ? work.team.num_ranks - 1 : 1;
  config.chunk_rows = part_of(shard_rows(work) * shards, kPieces);
}

void by_workers_in_halves_of_columns(const Workload& work, Config& config) {
  by_workers(work, config);
  config.copy_workers = kPieces;
  config.chunk_cols = columns_of_cut(work, 2);
}

/// Workers copy pieces of the shards of all peers; of 33 to 64 rows twice as many pieces.
void in_pieces(const Workload& work, Config& config) {
  const int64_t rows = shard_rows(work) * std::max(1, work.team.num_ranks - 1);
  const bool twice = rows > 2 * kPieces && rows <= 4 * kPieces;
  const int64_t pieces = twice ? 2 * kPieces : kPieces;
  config.chunk_rows = part_of(rows, pieces);
  if (twice) config.copy_workers = static_cast<int>(pieces);
}

/// All owners together, so that pairs share B, behind few copies: tiles take most SMs, and each copy takes a worker.
void all_owners_at_once(const Workload& work, Config& config) {
  constexpr int64_t kCopies = 8;
  config.group_owners = work.team.num_ranks;
  config.chunk_rows = part_of(shard_rows(work) * (work.team.num_ranks - 1), kCopies);
}

/// Tiles of all owners start together when a quarter of the columns of A is here. All row tiles are a group: another
/// group would read all of B once more.
void in_step(const Workload& work, Config& config) {
  config.tile_order = TileOrder::in_step;
  config.chunk_cols = columns_of_cut(work, 4);
  if (work.problem.m > config.tile_m)
    config.group_m = std::max(config.group_m, work.team.num_ranks * ceil_div(shard_rows(work), config.tile_m));
}

/// Each of so many workers copies a slice of each cut of the columns.
void in_step_by(const Workload& work, Config& config, int workers, int64_t cuts) {
  config.tile_order = TileOrder::in_step;
  config.copy_workers = workers;
  config.chunk_rows = part_of(shard_rows(work), workers);
  config.chunk_cols = columns_of_cut(work, cuts);
}

/// Rows of all peers up to which few workers send to all peers in time; more go to one peer first, then to two.
bool sends_to_all(const Workload& work) {
  constexpr int64_t kMost = 512;
  return shard_rows(work) * (work.team.num_ranks - 1) <= kMost;
}

void by_few_workers(const Workload& work, Config& config, int64_t cuts) {
  in_step_by(work, config, kFewWorkers, cuts);
  config.group_owners = sends_to_all(work) ? 1 : 2;
}

/// Few rows of a shard: how often B is read counts.
bool has_small_shards(const Workload& work) {
  constexpr int64_t kMost = 256;
  return gathers_rows_on_gpus(work) && shard_rows(work) <= kMost;
}

bool has_middle_shards(const Workload& work) {
  constexpr int64_t kMost = 512;
  return gathers_rows_on_gpus(work) && !has_small_shards(work) && shard_rows(work) <= kMost;
}

bool has_large_shards(const Workload& work) {
  return gathers_rows_on_gpus(work) && !has_small_shards(work) && !has_middle_shards(work);
}

bool has_halves_of_columns(const Workload& work) {
  return gathers_rows_on_gpus(work) && columns_of_cut(work, 2) < work.problem.k;
}

/// Own tiles alone would read all of B long before those of others do.
bool goes_in_step(const Workload& work) { return has_small_shards(work) && columns_of_cut(work, 4) < work.problem.k; }

/// The largest tiles keep all SMs busy: those of all owners, or those of two. Few workers bring one cut after the other
/// faster than tiles use it.
bool fills_in_step(const Workload& work) {
  const TileChoice large = largest_tile(work).front();
  const int64_t shard = shard_rows(work);
  const int ranks = work.team.num_ranks;
  const bool apart = ranks * ceil_div(shard, large.m) <= ceil_div(work.problem.m, large.m);
  Problem together = work.problem;
  if (!sends_to_all(work)) together.m = 2 * shard;
  return goes_in_step(work) && (sends_to_all(work) || apart) && together.m > large.m &&
         fills_waves({together, work.team}, large);
}

/// The widest tile whose one wave leaves kPieces SMs.
Tiles one_wave_beside_workers(const Workload& work) {
  for (const int64_t cols : {256, 192, 160, 128}) {
    const TileChoice tile{.m = 128, .n = cols};
    if (leaves_sms(work, tile, kPieces)) return {tile};
  }
  return {};
}

Tiles tile_of_256_columns(const Workload& /*work*/) { return {{.m = 128, .n = 256}}; }
Tiles pair_of_256_columns(const Workload& /*work*/) { return {{.m = 128, .n = 256, .cluster_m = 2}}; }
Tiles single_largest_tile(const Workload& /*work*/) { return {{.m = 256, .n = 192}}; }

/// The first tile without a cluster.
Tiles single_first_tile(const Workload& work) {
  const TileChoice first = first_tile(work).front();
  return {{.m = first.m, .n = first.n}};
}

bool gathers_rows_on_host(const Workload& work) { return gathers_rows(work.problem) && !on_gpus(work); }

/// A GEMM of few rows without communication.
bool multiplies_alone(const Workload& work) {
  return gathers_rows_on_gpus(work) && work.team.num_ranks == 1 && !work.problem.gathered_output;
}

constexpr Way kGatherWays[] = {
    {"GEMV",
     {1, kMostGemvRows + 1},
     1,
     multiplies_alone,
     gemv_tile,
     [](const Workload& /*work*/, Config& /*config*/) {}},
    {"copy engines, shards", kAll, 1, gathers_rows_on_gpus, first_tile, by_engines},
    {"copy engines, two owners together",
     {129, 1024},
     3,
     gathers_rows_on_gpus,
     pair_of_192_columns,
     [](const Workload& work, Config& config) {
       by_engines(work, config);
       config.group_owners = 2;
     }},
    {"copy engines, three rounds",
     {1024, kAnyRows},
     2,
     has_small_shards,
     pair_of_192_columns,
     [](const Workload& work, Config& config) { in_rounds(work, config, 3); }},
    {"copy engines, four rounds",
     {1024, kAnyRows},
     2,
     has_middle_shards,
     largest_tile,
     [](const Workload& work, Config& config) { in_rounds(work, config, 4); }},
    {"copy engines, largest tile", {1024, kAnyRows}, 2, has_large_shards, largest_tile, by_engines},
    {"copy engines, quarters of shards", kAll, 2,
     [](const Workload& work) { return gathers_rows_on_gpus(work) && has_quarters(work); }, first_tile,
     in_quarters_of_shard},
    {"copy engines, halves of shards", kAll, 2,
     [](const Workload& work) { return gathers_rows_on_gpus(work) && has_quarters(work); }, first_tile,
     in_halves_of_shard},
    {"copy engines, halves of columns", kAll, 2,
     [](const Workload& work) { return has_halves_of_columns(work) && has_quarters(work); }, single_first_tile,
     in_halves_of_columns},
    {"copy engines, four rounds of the first tile",
     {1024, kAnyRows},
     2,
     [](const Workload& work) { return gathers_rows_on_gpus(work) && has_no_quarters(work); },
     first_tile,
     [](const Workload& work, Config& config) { in_rounds(work, config, 4); }},
    {"copy engines, calls of the library", kAll, 1, gathers_rows_on_gpus, nullptr, by_engines_of_library},
    {"workers copy", kAll, 1, gathers_rows_on_gpus, first_tile, by_workers},
    // Smaller tiles end sooner behind the last rows.
    {"workers copy, smaller tile", {1024, 4097}, 3, gathers_rows_on_gpus, middle_tile, by_workers},
    {"workers copy halves of columns", {0, 65}, 2, has_halves_of_columns, first_tile, by_workers_in_halves_of_columns},
    {"workers copy, CTAs share K", {0, 513}, 1, gathers_rows_on_gpus, tiles_that_share_k, in_pieces},
    {"copy engines, CTAs share K", {0, 513}, 1, gathers_rows_on_gpus, tiles_that_share_k, by_engines},
    {"workers copy, all owners at once",
     {129, kAnyRows},
     2,
     [](const Workload& work) { return gathers_rows_on_gpus(work) && shard_rows(work) <= 128; },
     pair_of_256_columns,
     all_owners_at_once},
    {"copy engines, runtime rows", kAll, 1, gathers_rows_on_gpus, tiles_of_runtime_rows, by_engines},
    {"workers copy, runtime rows", {0, 1024}, 1, gathers_rows_on_gpus, tiles_of_runtime_rows, in_pieces},
    {"in step, copy engines",
     {129, kAnyRows},
     2,
     goes_in_step,
     middle_tile,
     [](const Workload& work, Config& config) {
       config.transport = Transport::copy_engine;
       in_step(work, config);
     }},
    {"in step, copy engines, 256 columns",
     {129, kAnyRows},
     2,
     goes_in_step,
     tile_of_256_columns,
     [](const Workload& work, Config& config) {
       config.transport = Transport::copy_engine;
       in_step(work, config);
     }},
    {"in step, workers, runtime rows",
     {129, kAnyRows},
     2,
     goes_in_step,
     tiles_of_runtime_rows,
     [](const Workload& work, Config& config) {
       in_pieces(work, config);
       in_step(work, config);
     }},
    {"in step, few workers, eighths of columns",
     {129, kAnyRows},
     2,
     fills_in_step,
     single_largest_tile,
     [](const Workload& work, Config& config) { by_few_workers(work, config, 8); }},
    {"in step, few workers, twelfths of columns",
     {129, kAnyRows},
     2,
     fills_in_step,
     single_largest_tile,
     [](const Workload& work, Config& config) { by_few_workers(work, config, 12); }},
    // All row tiles are a group.
    {"in step, one wave beside workers",
     {129, 2049},
     2,
     [](const Workload& work) { return gathers_rows_on_gpus(work) && columns_of_cut(work, 4) < work.problem.k; },
     one_wave_beside_workers,
     [](const Workload& work, Config& config) { in_step_by(work, config, kPieces, 4); }},
    {"copy engines, other tiles", kAll, 1, gathers_rows_on_gpus, other_tiles, by_engines},
    {"copy lanes", kAll, 1, gathers_rows_on_host, nullptr, by_engines},
    {"copy lanes, quarters of shards", kAll, 1, gathers_rows_on_host, nullptr,
     [](const Workload& work, Config& config) {
       by_engines(work, config);
       config.chunk_rows = ceil_div(shard_rows(work), int64_t{4});
     }},
    {"copy lanes, pull", kAll, 1, gathers_rows_on_host, nullptr,
     [](const Workload& work, Config& config) {
       by_engines(work, config);
       config.direction = Direction::pull;
     }},
    {"workers copy", kAll, 1, gathers_rows_on_host},
};

}  // namespace

std::vector<Way> ways_of_gathers() { return {std::begin(kGatherWays), std::end(kGatherWays)}; }

}  // namespace tilewire
