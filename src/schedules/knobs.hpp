// Predicates and rows that the schedules' tables of knobs share, and the limits of each knob.
// Called by the schedules and their planners.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {

/// Whether an operator has one collective, of rows or columns: an all-gather before the product, or any other after it.
[[nodiscard]] bool has_one_collective(const Structure& structure);
/// The same, or a mixture of experts.
[[nodiscard]] bool has_collectives(const Structure& structure);
/// Whether there is a GEMM, not of experts.
[[nodiscard]] bool multiplies(const Problem& problem);
/// Whether the operator's collective is an all-gather of A ...
[[nodiscard]] bool gathers(const Problem& problem);
/// ... a reduce-scatter, an all-reduce, an all-to-all of columns.
[[nodiscard]] bool scatters(const Problem& problem);
[[nodiscard]] bool all_reduces(const Problem& problem);
[[nodiscard]] bool exchanges(const Problem& problem);
/// Whether it is a reduce-scatter or an all-reduce.
[[nodiscard]] bool reduces(const Problem& problem);
/// Whether the gather or reduce-scatter is of columns.
[[nodiscard]] bool by_columns(const Problem& problem);
[[nodiscard]] bool gathers_columns(const Problem& problem);
[[nodiscard]] bool gathers_rows(const Problem& problem);
/// Whether it is a mixture of experts.
[[nodiscard]] bool has_experts(const Problem& problem);
/// Whether it is the whole layer of experts ...
[[nodiscard]] bool is_layer_of_experts(const Problem& problem);
/// ... or has at least its dispatch, or its combine.
[[nodiscard]] bool dispatches_tokens(const Problem& problem);
[[nodiscard]] bool combines_experts(const Problem& problem);
/// Whether it makes tiles: of a GEMM, of groups, or of a sum.
[[nodiscard]] bool makes_tiles(const Problem& problem);
/// All operators.
[[nodiscard]] bool any_operator(const Problem& problem);
/// All operators without experts.
[[nodiscard]] bool has_no_experts(const Problem& problem);

/// Rows of knobs of tiles and workers. The builder hands them to the kernels, except group_m (order_tiles) and split_k
/// (expect_products, add_product).
[[nodiscard]] std::vector<Knob> knobs_of_tiles();
/// `first`, then `more`.
template <class T>
[[nodiscard]] std::vector<T> joined(std::vector<T> first, const std::vector<T>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}
/// Whether one of the rules is broken.
[[nodiscard]] bool is_broken(const std::vector<KnobRule>& rules, const Asked& asked);

/// The row of a knob for the problem, or null.
[[nodiscard]] const Knob* find_knob(const std::vector<Knob>& knobs, const std::string& name, const Problem& problem);
/// The first knob that differs from its default and has no row, or a value that its row does not list; or nothing.
[[nodiscard]] std::optional<std::string> knob_without_row(const std::vector<Knob>& knobs, const Problem& problem,
                                                          const Config& config);
/// The values of a row that `tilewire check` and the tests try: `tried`, else `values`.
[[nodiscard]] std::vector<std::string_view> values_of(const Knob& knob);

/// Whether calls of the library make the products.
[[nodiscard]] bool by_library(const Config& config);
/// Whether tile_m or tile_n is set.
[[nodiscard]] bool sets_tile(const Config& config);
[[nodiscard]] bool has_clusters(const Config& config);
/// Rules of products by calls of the library.
[[nodiscard]] std::vector<KnobRule> rules_of_gemm_calls();
/// Rules of all-gathers of rows.
[[nodiscard]] std::vector<KnobRule> rules_of_gathers();

/// Throw Error(invalid_input) for values that no schedule can take.
void validate(const Config& config);

}  // namespace tilewire
