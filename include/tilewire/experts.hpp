// Mixture of experts: the numbers and the placement of experts.
// Part of problems; plans have the groups of each rank (RouteParams, body.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/activation.hpp"

namespace tilewire {

/// Experts of a mixture-of-experts layer. Expert e multiplies a token x by its part of w13, applies the activation, and
/// multiplies by its part of w2.
struct Experts {
  int64_t count = 0;  ///< experts in all
  int64_t top_k = 0;  ///< experts of a token
  int64_t ffn = 0;    ///< columns between the two products, after the activation
  /// Further experts of every token, with weight 1. Each rank has all of them, behind its other experts, for its
  /// tokens.
  int64_t shared = 0;
  Activation activation = Activation::swiglu;
  /// Most rows that a rank's experts take in a call, shared experts apart; 0 = any number. Rows in the order of the
  /// tokens. More rows are an error, or if `drops` they are left out, and output `dropped` (1 x 1 int32) counts them.
  int64_t max_rows = 0;
  bool drops = false;
  /// The experts of each rank, in the order of its weights. An expert on several ranks is replicated: row t of the
  /// tokens takes replica t % replicas. Empty: experts in order, an equal number on each rank (ceiling rule).
  std::vector<std::vector<int64_t>> placement{};
  /// The tokens that each expert is expected to take, relative to the others; shared ones apart. Empty: equal numbers.
  /// The tuner chooses for this routing. No result depends on it.
  std::vector<double> load{};

  bool operator==(const Experts&) const = default;
};

/// Columns of w13 of an expert: gate and up, or one matrix.
[[nodiscard]] inline int64_t first_columns(const Experts& experts) {
  return is_gated(experts.activation) ? 2 * experts.ffn : experts.ffn;
}

}  // namespace tilewire
