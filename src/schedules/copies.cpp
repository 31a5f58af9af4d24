// Ways to copy and send that several tables of candidates share.
// Called by the tables: gather_ways.cpp, reduce_ways.cpp and the planners' own.
#include "schedules/copies.hpp"

#include <algorithm>

#include "schedules/knobs.hpp"
#include "schedules/tiles.hpp"

namespace tilewire {

void by_engines(const Workload& work, Config& config) {
  config.transport = Transport::copy_engine;
  if (work.team.num_ranks > 2 && !gathers_columns(work.problem)) config.pacing = Pacing::lockstep;
}

void by_engines_of_library(const Workload& work, Config& config) {
  by_engines(work, config);
  config.compute = Provider::library;
}

void in_parts_of_shard(const Workload& work, Config& config, int64_t parts) {
  config.transport = Transport::copy_engine;
  config.chunk_rows = part_of(shard_rows(work), parts);
}

void in_groups_of_shard(const Workload& work, Config& config, int64_t parts) {
  in_parts_of_shard(work, config, parts);
  config.group_m = std::max<int64_t>(1, std::min(config.group_m, config.chunk_rows / config.tile_m));
}

void in_halves_of_shard(const Workload& work, Config& config) { in_groups_of_shard(work, config, 2); }

void in_quarters_of_shard(const Workload& work, Config& config) { in_groups_of_shard(work, config, 4); }

bool has_quarters(const Workload& work) {
  constexpr int64_t kLeast = 256;  // rows
  return work.team.num_ranks > 1 && part_of(shard_rows(work), 4) >= kLeast;
}

bool has_no_quarters(const Workload& work) { return !has_quarters(work); }

void by_stores(const Workload& work, Config& config) {
  if (multiplies(work.problem)) config.transport = Transport::tma;
}

}  // namespace tilewire
