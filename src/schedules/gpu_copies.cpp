// Configs whose copies are made by engines.
// Called by gpu_gather_choices.cpp and gpu_choices.cpp.
#include "schedules/gpu_copies.hpp"

#include <algorithm>

namespace tilewire {
namespace {

int64_t part_of_shard(const Problem& problem, const Team& team, int parts) {
  return part_of(shard_of(problem.m, team.num_ranks, 0).size(), parts);
}

}  // namespace

Config paced(const char* schedule, const Team& team) {
  Config config{.schedule = schedule, .transport = Transport::copy_engine};
  if (team.num_ranks > 2) config.pacing = Pacing::lockstep;
  return config;
}

Config unpaced() { return {.schedule = "fused", .transport = Transport::copy_engine}; }

bool has_quarters(const Problem& problem, const Team& team) {
  constexpr int64_t kLeast = 256;  // rows
  return team.num_ranks > 1 && part_of_shard(problem, team, 4) >= kLeast;
}

Config in_parts_of_shard(const Problem& problem, const Team& team, const TileChoice& tile, int parts) {
  Config config = with_tile(unpaced(), problem, tile);
  config.chunk_rows = part_of_shard(problem, team, parts);
  return config;
}

Config in_groups_of_shard(const Problem& problem, const Team& team, const TileChoice& tile, int parts) {
  Config config = in_parts_of_shard(problem, team, tile, parts);
  config.group_m = std::max<int64_t>(1, std::min(config.group_m, config.chunk_rows / config.tile_m));
  return config;
}

}  // namespace tilewire
