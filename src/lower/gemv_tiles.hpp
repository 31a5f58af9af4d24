// Tiles that the GEMV kernel makes: of up to 16 rows.
// Used by join_sums.cpp and by the cuda backend.
#pragma once

#include <optional>
#include <string>

#include "tilewire/plan.hpp"

namespace tilewire {

/// Why the GEMV kernel cannot make the product of a tile, or nothing.
[[nodiscard]] std::optional<std::string> unfit_product(const Plan& plan, const Task& tile);

/// The lane of a rank whose only work are tiles that the GEMV kernel makes and stores, without sums over ranks. -1 if
/// it has other work.
[[nodiscard]] int lane_of_gemv_alone(const Plan& plan, int rank);

}  // namespace tilewire
