// Configs whose GEMM is one call of the vendor's library between short kernels of one stream, for few or some rows.
// Called by gpu_choices.cpp.
#include "schedules/gpu_call_choices.hpp"

#include <algorithm>
#include <cstdint>

#include "schedules/gpu_tiles.hpp"
#include "schedules/knobs.hpp"

namespace tilewire {
namespace {

/// SMs but for some that only wait and post.
int working_sms(const Team& team) { return std::max(2, team.devices[0].sms - static_cast<int>(kOtherSms)); }

constexpr int64_t kUnit = 8;  // elements that a thread sums at once

/// Pieces of long rows, alike and of whole units, so many that each of `slices` workers has one of rows x cols.
void cut_sums(Config& config, int64_t rows, int64_t cols, int64_t slices) {
  constexpr int64_t kColumns = 1024;  // of a slice
  config.tile_n = std::max(kUnit, size_of_each(cols, part_of(cols, kColumns)));
  config.tile_m = part_of(rows, std::max<int64_t>(1, slices / part_of(cols, config.tile_n)));
}

/// Of which a stream-ordered call is worth measuring. Gathers of many ranks wait for links with more rows, too: slices
/// for each peer are short for engines.
int64_t most_rows(const Problem& problem, const Team& team) {
  return gathers(problem) && team.num_ranks > 2 ? kMostGathered : kM1024 - 1;
}

}  // namespace

std::vector<Config> stream_ordered_gemm(const Problem& problem, const Team& team) {
  if (team.num_ranks == 1 || !multiplies(problem) || exchanges(problem) || by_columns(problem)) return {};
  if (problem.m > most_rows(problem, team)) return {};
  const int sms = working_sms(team);
  const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
  Config config{.schedule = "sequential", .compute = Provider::library};
  if (gathers(problem)) {
    config.copy_workers = sms / 2;
    // NOTE: tasks are listed peer by peer: a slice of the shard for each worker has all of them send to one peer, then
    // to the next, which nobody else sends to then. Few rows go to all peers at once.
    config.chunk_rows =
        part_of(shard >= config.copy_workers ? shard : shard * (team.num_ranks - 1), config.copy_workers);
    return {config};
  }
  if (scatters(problem)) {
    cut_sums(config, shard, problem.n, sms);
  } else {
    cut_sums(config, problem.m, problem.n, int64_t{sms} * team.num_ranks);
  }
  config.reduce_workers = sms;
  config.reduce_mode = ReduceMode::pull;
  return {config};
}

std::vector<Config> columns_at_owners(const Problem& problem, const Team& team) {
  constexpr int64_t kLeast = 4096;  // elements of a slice that are worth a worker
  const bool even = problem.n > 0 && problem.n % (kUnit * team.num_ranks) == 0;
  if (team.num_ranks == 1 || !multiplies(problem) || !all_reduces(problem) || problem.m >= kM1024 || !even) return {};
  Config config{.schedule = "fused", .compute = Provider::library};
  config.reduce_workers = working_sms(team);
  const int64_t cols = problem.n / team.num_ranks;
  cut_sums(config, problem.m, cols, std::min<int64_t>(config.reduce_workers, part_of(problem.m * cols, kLeast)));
  return {config};
}

}  // namespace tilewire
