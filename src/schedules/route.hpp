// How a slice of a sum comes from its makers to its owner, by the config's knobs.
// Called by reduce.cpp and by the schedules' rules.
#pragma once

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Each rank makes tiles of its partial result; the output is cut into slices with one owner each, who sums them.
enum class Route {
  stage,       ///< the tile is stored into the maker's slot at the owner
  send,        ///< the tile is stored locally, a copy lane sends finished chunks to the slots
  pull,        ///< the tile is stored locally, the owner reads it
  accumulate,  ///< peers add their tiles in one slot at the owner, in turn; the owner adds its own to that
  ring,        ///< from rank to rank, each adding its own, ending at the owner
};

[[nodiscard]] Route route_of(const Config& config);
/// Whether tiles are stored on their own rank first.
[[nodiscard]] bool keeps_partial(Route route);
/// Whether an all-reduce reads its input where it is, so that no tile is made first.
[[nodiscard]] bool sums_in_place(const Problem& problem, const Config& config, int num_ranks);

}  // namespace tilewire
