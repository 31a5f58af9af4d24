// What tasks compute from what their operands hold: products, pooled rows, sums, the epilogue.
// Called by coverage.cpp. All patches are in the frame of the operand or result: its first element is (0, 0).
// Throw Error(refused_plan) with a clause that follows the task's name.
#pragma once

#include <vector>

#include "check/content.hpp"

namespace tilewire::checking {

struct Operand {
  std::vector<Patch> patches;
  Shape shape;
};

/// A times B: an unfinished sum with their K range as contributions.
[[nodiscard]] std::vector<Patch> product_of(Values& values, BLayout b_layout, const Operand& a, const Operand& b);
/// Rows of a table summed as rows of indices say: the one contribution 0..1.
[[nodiscard]] std::vector<Patch> pooled(Values& values, const Operand& table, const Operand& indices);
/// Element by element, of two unfinished sums of one shape.
[[nodiscard]] std::vector<Patch> sum_of(Values& values, const std::vector<Patch>& x, const std::vector<Patch>& y);
/// A bias or a residual added, which must be the columns', or the elements'.
[[nodiscard]] std::vector<Patch> with_operand(Values& values, const std::vector<Patch>& sums, const Operand& operand,
                                              What what);
/// The epilogue applied.
[[nodiscard]] std::vector<Patch> finished(Values& values, const std::vector<Patch>& sums);

}  // namespace tilewire::checking
