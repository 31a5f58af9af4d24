// What is proven to happen before what: a graph of tasks and of joins (all of some posts have happened).
// Built by prove_order from the waits that cannot do without a post; read by the race check.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "check/report.hpp"
#include "check/tasks.hpp"

namespace tilewire::checking {

/// Nodes are tasks (by their number), then joins. An edge: the first is done before the second starts. The first joins
/// are the meetings of collectives: all ranks' calls have begun.
struct Order {
  int num_tasks = 0;
  std::vector<int> pred_begin{};  ///< of each node in `preds`, then the end
  std::vector<int> preds{};       ///< sorted for each node
  std::vector<int> sequence{};    ///< all nodes, predecessors first
  std::vector<int> position{};    ///< of each node in `sequence`
  /// Bit r: rank r has begun this call, hence ended the last one, before the node starts.
  std::vector<uint64_t> begun{};
  /// Bit r: the node is done before rank r's call ends.
  std::vector<uint64_t> ends{};

  [[nodiscard]] int num_nodes() const { return static_cast<int>(sequence.size()); }
  [[nodiscard]] bool is_join(int node) const { return node >= num_tasks; }
  [[nodiscard]] std::span<const int> preds_of(int node) const {
    return {preds.data() + pred_begin[node], preds.data() + pred_begin[node + 1]};
  }
  /// Task x of one call is done before task y of the next call starts, on whichever ranks.
  [[nodiscard]] bool before_next_call(int x, int y) const { return (ends[x] & begun[y]) != 0; }
};

/// The largest set of edges that justify each other; `simulated` is an order of execution.
///
/// A wait that is the first in time to be satisfied against an edge would need a post of a later call,
/// whose own past, all before that moment, obeys the edges; so edges may be justified by each other.
[[nodiscard]] Order prove_order(const Tasks& tasks, const std::vector<int>& simulated, Report& report);

}  // namespace tilewire::checking
