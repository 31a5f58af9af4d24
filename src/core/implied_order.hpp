// Adds signals for the order that LL data (Buffer::ll) and stages (Lane::stage) imply.
// Used by the checker, the simulator and backends.
#pragma once

#include "tilewire/plan.hpp"

namespace tilewire {

/// Whether a plan has lanes of several stages.
[[nodiscard]] bool has_stages(const Plan& plan);

/// Whether LL data or stages order tasks of the plan.
[[nodiscard]] bool has_implied_order(const Plan& plan);

/// Add one signal per polling task (core/ll.hpp): all tasks that write its data post to it, and the task waits for it.
/// Lanes and tasks keep their indices.
[[nodiscard]] Plan with_ll_signals(Plan plan);

/// Make each lane wait for the ends of the rank's lanes of earlier stages. Lanes and tasks keep their indices.
[[nodiscard]] Plan with_stage_signals(Plan plan);

/// Add both kinds of signals.
[[nodiscard]] Plan with_all_signals(Plan plan);

/// Call `use` with the plan in which signals express the whole order: a copy with added signals, or the plan itself if
/// it needs none.
template <class Use>
auto in_full_order(const Plan& plan, const Use& use) {
  return has_implied_order(plan) ? use(with_all_signals(plan)) : use(plan);
}

}  // namespace tilewire
