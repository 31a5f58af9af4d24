// Splits tiles with several waits (Wait::from_col) or addends into several tasks.
// Called by check.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::checking {

/// An equivalent plan of smaller tasks. A tile with deferred waits gets one `sync` before it per run of columns that it
/// loads early. The sync reads these columns after the waits for them, and the product waits for the sync. A tile with
/// addends stores its product in a buffer of its own, and a `reduce` after it adds the addends. If a tile posts to a
/// signal that it also waits for, its product makes that post; no task learns more from this. So proofs of order and
/// values of this plan hold for the original plan, too. Progress is also proven for the original plan, whose tiles do
/// all waits first.
struct Steps {
  Plan plan{};
  std::vector<std::vector<int64_t>> places{};  ///< by lane: for each task, the index of its tile in the original plan
};

/// Whether a tile has several steps.
[[nodiscard]] bool has_steps(const Task& task);

[[nodiscard]] Steps in_steps(const Plan& plan);

}  // namespace tilewire::checking
