// Which tiles tensor cores make.
// Used by passes and by the cuda backend.
#pragma once

#include <optional>
#include <string>

#include "tilewire/plan.hpp"

namespace tilewire {

/// The first product of the plan by tiles, or by the library where none is, or nothing: all of a plan are alike.
[[nodiscard]] const Task* first_product(const Plan& plan);

/// Why tensor cores cannot take the plan's tiles (type, layout, tile shape, epilogue), or nothing. What depends on
/// addresses alone, alignment, is found when tables are made.
[[nodiscard]] std::optional<std::string> slow_tiles(const Plan& plan);

/// The same for the way out of one task's result: its epilogue and destinations. `operands`: type of the tiles' A and
/// B.
[[nodiscard]] std::optional<std::string> slow_exit(const Plan& plan, const Task& task, DType operands);

}  // namespace tilewire
