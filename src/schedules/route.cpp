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

}  // namespace tilewire
