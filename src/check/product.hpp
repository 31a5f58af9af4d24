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
/// The columns of a product joined in pairs: column i of columns 2i and 2i + 1.
[[nodiscard]] std::vector<Patch> in_pairs(const Values& values, const std::vector<Patch>& product);
/// For each row of indices, the sum of the listed rows of the table. Its only contribution is 0..1.
[[nodiscard]] std::vector<Patch> pooled(Values& values, const Operand& table, const Operand& indices);

/// Rows or columns of a result that are contiguous in the global tensor.
struct Strip {
  int64_t begin;
  int64_t end;
  int64_t offset;
};
/// Cut the rows (or columns) of an operand into strips of equal offset. Each must come from one global row.
[[nodiscard]] std::vector<Strip> strips_of(const Values& values, const std::vector<Patch>& patches, bool by_rows,
                                           int64_t extent);
/// Whether an operand has the content of an earlier violation.
[[nodiscard]] bool is_unknown(const std::vector<Patch>& patches);
/// One patch.
[[nodiscard]] std::vector<Patch> whole(Shape shape, Content content);
/// Throw Error(refused_plan), "reads ... where it needs `wanted`", unless a patch is `what`.
void require_what(const Values& values, const Patch& patch, What what, const char* wanted);
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
