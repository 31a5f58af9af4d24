// Tasks on grouped buffers, whose rows are groups of rows: rules, and the extents that such tasks read.
// Used by the validation of plans, the planner of routed plans, the checker and the host backend.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// The rule that a task breaks, as a clause that follows the task's name: of routing, of pools with weights, of grouped
/// GEMMs, and of all tasks that touch grouped buffers. The task's regions are valid.
[[nodiscard]] std::optional<std::string> broken_rule_of_groups(const Plan& plan, const Task& task);

/// The extents of the groups that a task reads and writes, whole; a task reads them, too. None twice.
[[nodiscard]] std::vector<Region> extents_read(const Plan& plan, const Task& task);

/// Rows of memory, enough for any routing of tokens to the groups of a rank; `top_k`: experts of a token.
[[nodiscard]] int64_t most_rows_of(const RouteParams& route, int64_t tokens, int64_t top_k);

/// Whether a group is of a shared expert.
[[nodiscard]] inline bool is_shared(const RouteParams& route, const ExpertGroup& group) {
  return group.expert >= route.experts;
}
/// Groups of shared experts among those of a shard.
[[nodiscard]] int64_t num_shared(const RouteParams& route);
/// Groups of all shards of the tokens.
[[nodiscard]] inline int64_t num_groups(const RouteParams& route) { return route.shards * std::ssize(route.groups); }

/// Columns of the B of each group of a grouped GEMM.
[[nodiscard]] int64_t columns_of_each_b(const Task& task);

}  // namespace tilewire
