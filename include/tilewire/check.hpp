// The checker: proves a plan right before anything runs, or refuses it with a counter-example.
// Called by make_op (on request; always in debug builds), `tilewire check` and the tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// What an element of a caller's buffer stands for.
enum class Role {
  a,         ///< element (row, col) of A: row = m, col = k
  b,         ///< element of B in the problem's layout
  bias,      ///< element (0, n) of an epilogue operand
  residual,  ///< element (m, n) of an epilogue operand
  partial,   ///< element (m, n) of a sum across ranks, with the contributions [terms.begin, terms.end)
  indices,   ///< row indices into a table
};

/// Where one rank's copy of a caller's buffer lies in the global tensor. Local (0, 0) is global
/// (row, col). For outputs: what every element must hold at the end.
struct Meaning {
  int buffer = 0;  ///< among the callers' buffers of the plan
  int rank = 0;
  Role role = Role::a;
  int64_t row = 0;
  int64_t col = 0;
  Range terms{};          ///< `partial`: the contributions held (inputs) or required (outputs)
  bool finished = false;  ///< outputs: the epilogue has been applied

  bool operator==(const Meaning&) const = default;
};

/// What a plan is to compute: the operator's side of a proof.
struct Specification {
  std::vector<Buffer> buffers{};     ///< the callers', in the order of the plan's; empty = whatever the plan has
  std::vector<Meaning> meanings{};   ///< `buffer` counts in the order of the plan's callers' buffers
  std::vector<Epilogue> epilogue{};  ///< of finished elements
  int64_t least_bytes = 0;           ///< that must cross links, over all ranks; 0 = unknown
};

/// Which of the four proofs failed.
enum class Rule { structure, progress, coverage, race, unsupported };

/// One reason for a refusal. `text` names the tasks, signals and regions involved, in words.
struct Violation {
  Rule rule = Rule::structure;
  std::string text{};

  bool operator==(const Violation&) const = default;
};

/// Bytes that one ordered pair of ranks moves in one call.
struct LinkTraffic {
  int from = 0;
  int to = 0;
  int64_t bytes = 0;

  bool operator==(const LinkTraffic&) const = default;
};

struct CheckResult {
  std::vector<Violation> violations{};  ///< empty = proven; at most 20, the first of each kind first
  std::vector<LinkTraffic> traffic{};   ///< pairs that move anything
  int64_t total_bytes = 0;              ///< over all links
  int64_t least_bytes = 0;              ///< what the operator cannot do without; 0 = unknown

  [[nodiscard]] bool ok() const { return violations.empty(); }
};

/// Prove that `plan` computes what `wanted` says, for any number of workers, any interleaving, and successive calls.
/// Sound: it refuses what it cannot prove.
[[nodiscard]] CheckResult check(const Plan& plan, const Specification& wanted);
/// The same for the problem in the plan's note, whose operator is in the table (src/operators).
[[nodiscard]] CheckResult check(const Plan& plan);
/// Throw Error(refused_plan) with the violations in words, unless `check(plan)` is ok.
void require_proven(const Plan& plan);

/// Bytes per link alone.
[[nodiscard]] std::vector<LinkTraffic> traffic_of(const Plan& plan);

}  // namespace tilewire
