// How a slice of a sum comes from its makers to its owner, by the config's knobs.
// Called by reduce.cpp and by the schedules' `refuses`.
#include "schedules/route.hpp"

#include "schedules/builder.hpp"
#include "schedules/knobs.hpp"

namespace tilewire {

Route route_of(const Config& config) {
  if (config.algorithm == Algorithm::ring) return Route::ring;
  if (config.reduce_mode == ReduceMode::accumulate) return Route::accumulate;
  if (config.reduce_mode == ReduceMode::pull) return Route::pull;
  return config.transport == Transport::copy_engine ? Route::send : Route::stage;
}

bool keeps_partial(Route route) { return route != Route::stage && route != Route::accumulate; }

bool sums_in_place(const Problem& problem, const Config& config, int num_ranks) {
  const Route route = route_of(config);
  const bool peers_read = route == Route::pull && num_ranks > 1;
  return !multiplies(problem) && keeps_partial(route) && config.wire.value_or(out_dtype_of(problem)) == problem.dtype &&
         (!peers_read || in_arena(problem, "x"));
}

std::optional<std::string> refuses_tile_knobs(const Problem& problem, const Team& team, const Config& config) {
  if (multiplies(problem)) return std::nullopt;
  if (config.split_k > 1 || config.group_m > 1 || config.group_owners > 1 || config.rounds > 1)
    return "split_k, group_m, group_owners, rounds: there is no GEMM";
  if (!sums_in_place(problem, config, team.num_ranks)) return std::nullopt;
  const bool says = config.tile_order == TileOrder::naive || config.tile_workers > 0;
  if (says) return "order, tile_workers: x is summed where it is, no tile is made first";
  return std::nullopt;
}

}  // namespace tilewire
