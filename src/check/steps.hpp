// Tiles that do not wait for everything at once (Wait::from_col), as several tasks each.
// Called by check.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::checking {

/// A plan that does the same in smaller tasks. Where a tile has deferred waits, a `sync` comes before it for every run
/// of columns that it loads early: it reads these when the waits up to them are over, and the product waits for it.
/// Where a tile has addends, the product goes to a buffer of its own, and a `reduce` after it adds it to them. What
/// a tile posts to a signal for which it waits itself is posted by its product already: nobody learns more from that.
/// So the order and the values that are proven of this plan hold for the other one. Progress is proven of the other
/// one, in which tiles wait for everything first.
struct Steps {
  Plan plan{};
  std::vector<std::vector<int64_t>> places{};  ///< by lane: of each task here, the one of the other plan
};

/// Whether a tile is more than one step.
[[nodiscard]] bool has_steps(const Task& task);

[[nodiscard]] Steps in_steps(const Plan& plan);

}  // namespace tilewire::checking
