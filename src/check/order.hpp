// The proven order: a graph of tasks and of joins (a join comes after several posts).
// Built by prove_order from the waits that cannot do without a post; read by the race check.
#pragma once

#include <span>
#include <vector>

#include "check/rank_sets.hpp"
#include "check/report.hpp"
#include "check/tasks.hpp"

namespace tilewire::checking {

/// Nodes are the tasks, by number, then the joins. An edge means that its first node is done before its second starts.
/// The first joins are the meetings of collectives: all ranks have started their part.
struct Order {
  int num_tasks = 0;
  std::vector<int> pred_begin{};  ///< start of each node's list in `preds`, then the end
  std::vector<int> preds{};       ///< predecessors, sorted for each node
  std::vector<int> sequence{};    ///< all nodes in topological order
  std::vector<int> position{};    ///< index of each node in `sequence`
  RankSets begun{};  ///< of each node: ranks that have begun this call, and so ended the last one, before it starts
  RankSets ends{};   ///< of each node: ranks whose call ends after it is done

  [[nodiscard]] int num_nodes() const { return static_cast<int>(sequence.size()); }
  [[nodiscard]] bool is_join(int node) const { return node >= num_tasks; }
  [[nodiscard]] std::span<const int> preds_of(int node) const {
    return {preds.data() + pred_begin[node], preds.data() + pred_begin[node + 1]};
  }
  /// Whether task x of one call is done before task y of the next call starts. Any ranks.
  [[nodiscard]] bool before_next_call(int x, int y) const { return meet(ends[x], begun[y]); }
};

/// Find the largest set of edges that justify each other. `simulated` is an order of execution.
///
/// Edges may justify each other: consider the first wait in time that is satisfied against an edge. It needs a post of
/// a later call. Everything before that moment obeys the edges, a contradiction (docs/checker.md).
[[nodiscard]] Order prove_order(const Tasks& tasks, const std::vector<int>& simulated, Report& report);
/// By rank: ranks that have begun this call before the rank's call ends. `order` is that of signals; `with_data` has
/// the same tasks, and for LL data the signals with indices [first, end). NOTE: LL data count once, not along a path: a
/// task may publish an element before it has polled all others.
[[nodiscard]] RankSets heard_by_ranks(const Tasks& with_data, const Order& order, int first, int end);

}  // namespace tilewire::checking
