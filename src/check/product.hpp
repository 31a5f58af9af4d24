// Symbolic results of tasks: products, pooled rows, sums, the epilogue. Called by coverage.cpp.
// Patches are in the frame of their operand or result, whose first element is (0, 0). The functions throw
// Error(refused_plan) with a clause that follows the task's name.
#pragma once

#include <vector>

#include "check/content.hpp"

namespace tilewire::checking {

struct Operand {
  std::vector<Patch> patches;
  Shape shape;
};

/// A times B: an unfinished sum; its contributions are the operands' range of K.
[[nodiscard]] std::vector<Patch> product_of(Values& values, BLayout b_layout, const Operand& a, const Operand& b);
/// For each row of indices, the sum of the listed rows of the table. Its only contribution is 0..1.
[[nodiscard]] std::vector<Patch> pooled(Values& values, const Operand& table, const Operand& indices);
/// The normalised rows of a sum, reads[0], with the weight reads[1] and the bias reads[2], if there is one.
[[nodiscard]] std::vector<Patch> normed(Values& values, const Norm& norm, const std::vector<Operand>& reads);
/// The element-wise sum of two unfinished sums of one shape.
[[nodiscard]] std::vector<Patch> sum_of(Values& values, const std::vector<Patch>& x, const std::vector<Patch>& y);
/// The sum with a bias or residual, which must belong to the same columns or elements.
[[nodiscard]] std::vector<Patch> with_operand(Values& values, const std::vector<Patch>& sums, const Operand& operand,
                                              What what);
/// The sums with the epilogue applied.
[[nodiscard]] std::vector<Patch> finished(Values& values, const std::vector<Patch>& sums);

}  // namespace tilewire::checking
