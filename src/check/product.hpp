// What tasks compute from what their operands hold: products, pooled rows, sums, the epilogue.
// Called by coverage.cpp. All pieces are in the frame of the operand or result: its first element is (0, 0).
// Throw Error(refused_plan) with a clause that follows the task's name.
#pragma once

#include <vector>

#include "check/content.hpp"

namespace tilewire::checking {

struct Operand {
  std::vector<Piece> pieces;
  Shape shape;
};

/// A times B, in the problem's layouts: an unfinished sum with their K range as contributions.
[[nodiscard]] std::vector<Piece> product_of(Values& values, const Problem& problem, const Operand& a, const Operand& b);
/// Rows of a table summed as rows of indices say: the one contribution 0..1.
[[nodiscard]] std::vector<Piece> pooled(Values& values, const Operand& table, const Operand& indices);
/// Element by element, of two unfinished sums of one shape.
[[nodiscard]] std::vector<Piece> sum_of(Values& values, const std::vector<Piece>& x, const std::vector<Piece>& y);
/// The epilogue applied; `bias` has no pieces where there is none.
[[nodiscard]] std::vector<Piece> finished(Values& values, const std::vector<Piece>& sums, const Operand& bias);

}  // namespace tilewire::checking
