// Symbolic results of mixture of experts: routing, tokens in groups, products of groups, sums of experts.
// Called by coverage.cpp and bodies.cpp. Rows of grouped operands are groups.
#pragma once

#include <vector>

#include "check/product.hpp"

namespace tilewire::checking {

/// The results of a routing, in the order of its writes.
[[nodiscard]] std::vector<std::vector<Patch>> routed(Values& values, const Task& task,
                                                     const std::vector<Operand>& reads);
/// Rows of A in groups (reads[1] = tokens), or the weighted sums of a rank's experts (reads[1] = places, reads[2] =
/// their weights). The only contribution of such a sum is the rank's number.
[[nodiscard]] std::vector<Patch> pooled_by_groups(Values& values, const Task& task, const std::vector<Operand>& reads);
/// Whether pooled_by_groups gives the result.
[[nodiscard]] bool pools_by_groups(const Values& values, const Operand& indices);
/// Rows of A whose tokens have places.
[[nodiscard]] std::vector<Patch> selected(Values& values, const Operand& rows, const Operand& places);
/// Groups times their matrices of w13, or of w2.
[[nodiscard]] std::vector<Patch> grouped_product(Values& values, const Task& task, const Operand& a, const Operand& b);

}  // namespace tilewire::checking
