// Loads that come before all of a product's waits (Wait::from_col), as tasks of their own.
// Called by check.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::checking {

/// A plan that reads as early as another one: before each product with deferred waits there is a `sync` for every run
/// of columns that it loads early. It reads these when the waits up to them are over, and the product waits for it. So
/// what is proven of this plan holds for the other one.
struct EarlyLoads {
  Plan plan{};
  std::vector<std::vector<int64_t>> places{};  ///< by lane: of each task here, the one of the other plan
};

[[nodiscard]] EarlyLoads with_early_loads(const Plan& plan);

}  // namespace tilewire::checking
