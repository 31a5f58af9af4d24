// Plans whose order signals do not say alone: LL data (Buffer::ll) and stages (Lane::stage), as the same plans with
// signals that do. Used by the checker, the simulator, and backends.
#pragma once

#include "tilewire/plan.hpp"

namespace tilewire {

/// Whether a rank's lanes are in several stages.
[[nodiscard]] bool has_stages(const Plan& plan);

/// Whether signals do not say all of its order.
[[nodiscard]] bool has_implied_order(const Plan& plan);

/// Each task that polls (core/ll.hpp) waits for a signal, to which all post that write what it reads. Lanes and tasks
/// keep their places.
[[nodiscard]] Plan with_ll_signals(Plan plan);

/// Each lane waits for the ends of the rank's lanes of earlier stages. Lanes and tasks keep their places.
[[nodiscard]] Plan with_stage_signals(Plan plan);

/// Both.
[[nodiscard]] Plan with_all_signals(Plan plan);

/// `use` of the plan whose signals say all of its order: the plan itself, uncopied, where they do.
template <class Use>
auto in_full_order(const Plan& plan, const Use& use) {
  return has_implied_order(plan) ? use(with_all_signals(plan)) : use(plan);
}

}  // namespace tilewire
